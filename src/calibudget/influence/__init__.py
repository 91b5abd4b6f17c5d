"""What each candidate would do for each calibration subgroup: single examples' gradients, sketched and compared.

Names are loaded on first use, so importing this package imports neither torch nor transformers.
"""
