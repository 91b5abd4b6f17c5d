"""`python -m calibudget`, the same as the `calibudget` command."""

from calibudget.cli.entry import entry

if __name__ == "__main__":
    entry()
