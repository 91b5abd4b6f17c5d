"""What each candidate would do for each calibration subgroup: single examples' gradients, sketched and compared."""
