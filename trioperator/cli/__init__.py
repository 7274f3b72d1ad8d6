"""The command ``trioperator``: parses options, calls the library, prints messages, and exits with a code."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    from trioperator.cli.root import app

    app()
