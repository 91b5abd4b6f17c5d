"""`python -m calibudget`, the same as the `calibudget` command."""

from calibudget.cli.main import entry

if __name__ == "__main__":
    entry()
