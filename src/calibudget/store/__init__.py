"""Canonical bytes, atomic files, locks, journals, sums and the artefacts of a run directory."""
