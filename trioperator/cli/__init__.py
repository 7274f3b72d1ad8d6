"""The command ``trioperator``: it parses options, calls the library, and turns errors into messages and exit codes."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    from trioperator.cli.commands import app

    app()
