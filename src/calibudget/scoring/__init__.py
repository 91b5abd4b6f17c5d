"""Scoring calibration records: a scorer protocol, a fake and a local scorer, resumable measuring, and the scores."""
