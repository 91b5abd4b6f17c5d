"""What sources repeat and share, with one another and with evaluation sets."""
