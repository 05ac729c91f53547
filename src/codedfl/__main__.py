"""``python -m codedfl`` is the command line too."""

from codedfl.cli import main

if __name__ == "__main__":
    main()
