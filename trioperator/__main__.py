"""``python -m trioperator`` is the command ``trioperator``."""

from trioperator.cli import main

if __name__ == "__main__":
    main()
