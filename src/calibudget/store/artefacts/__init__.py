"""The files of a run directory, one module each: record to file and back, every field checked on reading."""
