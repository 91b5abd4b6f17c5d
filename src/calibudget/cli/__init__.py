"""The command line: one thin file a command, on the public API."""
