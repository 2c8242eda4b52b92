"""`python -m tolfl` is the `tolfl` command."""

from tolfl.cli import main

if __name__ == "__main__":
    main()
