"""The keyed, nested draw of exactly the quota of each source, and its digests."""
