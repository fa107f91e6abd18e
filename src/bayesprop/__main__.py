"""`python -m bayesprop` is the command line."""

from bayesprop.cli import main

if __name__ == "__main__":
    main()
