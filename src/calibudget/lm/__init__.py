"""Everything about models and tokens: loading, templates, encoding, forward and greedy decoding."""
