"""Models and tokens: finding and loading a model, one encoding, the packed forward, greedy decoding."""

import os

# MKL shares a matrix product among threads in ways that change the last bits with their number, and so with the number
# of workers. Its strict mode doesn't, at no cost that was measured; it is read at MKL's first use, so it must stand
# before that.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
