"""Sources: files and hub data sets to identified records, their calibration split and what was noticed in them."""
