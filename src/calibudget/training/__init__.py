"""LoRA+ training of an adapter on a train set (paper 2.4 and 3.1)."""
