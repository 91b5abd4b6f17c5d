"""The calibration pass: one mean NLL and one parsed greedy answer per calibration record."""
