"""A testbed where allocation can be seen: generated families, a small model, many paired cells."""
