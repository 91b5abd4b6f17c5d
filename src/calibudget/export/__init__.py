"""From a finished run to a trainer: its rows, the configuration that trains them, and a check of every token."""
