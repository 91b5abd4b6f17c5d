"""Known data sets, prompts, and the parsing and comparing of answers."""
