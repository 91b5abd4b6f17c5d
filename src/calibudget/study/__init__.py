"""The study: a frozen protocol, a grid of paired cells, their statistics, tables and figures (paper 3)."""
