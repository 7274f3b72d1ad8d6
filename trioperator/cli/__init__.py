"""The command ``trioperator``: parses options, calls the library, prints messages, and exits with a code."""

from __future__ import annotations

from typing import Final

__all__ = ["main"]

# The exit code of an interrupted command, as in trioperator.signals, which is not imported just to look.
_INTERRUPTED: Final = 130
# Seconds that Python may take to exit then.
_PATIENCE: Final = 2.0


def main() -> None:
    """Run the command with the arguments of the process, and exit."""
    from trioperator.cli.root import app

    try:
        app()
    except SystemExit as error:
        if error.code == _INTERRUPTED:
            from trioperator.signals import end_process_after

            end_process_after(_PATIENCE)  # threads of handlers may keep Python from exiting
        raise
