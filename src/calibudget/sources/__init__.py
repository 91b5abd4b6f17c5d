"""From files and hubs to identified records, calibration splits and candidate pools."""
