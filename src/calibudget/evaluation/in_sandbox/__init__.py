"""What runs inside the sandboxes: standard library only, imported there by a bare interpreter.

Two processes in two sandboxes share one socket. The *judge* holds the tests and never executes a line of the
program under test; the *program* holds that program and never sees a test. Calls go one way as plain data,
results come back as plain data, so nothing that the program patches, prints or exits with can pass for a verdict.
"""
