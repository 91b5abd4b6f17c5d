"""Known data sets, and how answers are parsed and compared: shared by calibration and evaluation, and versioned."""
