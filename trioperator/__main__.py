"""``python -m trioperator`` is the command ``trioperator``."""

from trioperator.cli import main

# Lets worker processes of an operator import this file, and so the finder of its files: multiprocessing does not import
# the main module of a package, but one without a spec, as that of the script is.
__spec__ = None

if __name__ == "__main__":
    main()
