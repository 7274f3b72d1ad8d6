"""A type of options for programs that are made with Click and run operators, as Kopf's command is."""

from __future__ import annotations

import click

from trioperator._logs import LogFormat


class LogFormatParamType(click.Choice[LogFormat]):
    """A choice of log formats by their names, in upper or lower case: ``type=LogFormatParamType()`` of a Click option.

    The value of the option is a :class:`LogFormat`. Click 8.2 or newer has to be installed.
    """

    def __init__(self) -> None:
        super().__init__(LogFormat, case_sensitive=False)
