"""Benchmarks to per-task scores and aggregates; generated code runs in a sandbox only."""
