"""Exact arithmetic behind the allocator: the answer is that of rational numbers, on every platform."""
