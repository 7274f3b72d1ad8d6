"""The command ``trioperator``: parses options, calls the library, prints messages, and exits with a code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from trioperator.cli.controls import CLIControls

if TYPE_CHECKING:
    from trioperator.cli.click_types import LogFormatParamType

__all__ = ["CLIControls", "LogFormatParamType", "main"]

# The exit code of an interrupted command, as in trioperator.signals, which is not imported just to look.
_INTERRUPTED: Final = 130
# Seconds that Python may take to exit then.
_PATIENCE: Final = 2.0


def main(args: Sequence[str] | None = None, *, controls: CLIControls | None = None) -> None:
    """Run the command with *args*, by default the arguments of the process, and exit.

    *controls* are for what options cannot express, such as a flag that stops the operator.
    """
    from trioperator.cli.root import app

    try:
        app(args, obj=controls)
    except SystemExit as error:
        if error.code == _INTERRUPTED:
            from trioperator.signals import end_process_after

            end_process_after(_PATIENCE)  # threads of handlers may keep Python from exiting
        raise


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "LogFormatParamType":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from trioperator.cli.click_types import LogFormatParamType  # Click is not needed otherwise

        return LogFormatParamType
