"""Everything that touches a run directory: canonical bytes, atomic files, the lock, the journal, sums and artefacts."""
