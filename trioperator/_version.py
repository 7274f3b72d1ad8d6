"""The version, in one place: the build reads it here, and reading it at run time costs nothing."""

__version__ = "0.1.0"
