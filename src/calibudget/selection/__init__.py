"""From quotas to examples: the keyed draw, the selectors, proxy scores and sketches, digests, rows of the train set."""
