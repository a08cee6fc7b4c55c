"""The program by `python -m compatstore`, where its command is not on the path."""

from compatstore.cli.app import main

if __name__ == "__main__":
    main()
