"""Controls of the command that no options can express: objects, for programs and tests that run the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trioperator._handling.declaring.registry import OperatorRegistry
    from trioperator._supervisor.plan import Flag
    from trioperator.settings import OperatorSettings


@dataclasses.dataclass(kw_only=True, slots=True)
class CLIControls:
    """Controls of ``trioperator run`` that cannot be passed on the command line.

    ::

        trioperator.cli.main(["run", "app.py"], controls=CLIControls(stop_flag=stop))

    - *ready_flag*: Trio or threading event that is set when the operator is ready
    - *stop_flag*: Trio or threading event that stops the operator when it is set
    - *registry*: registry of the handlers; it becomes the default registry before the files are loaded
    - *settings*: initial settings of the operator; options on the command line take precedence
    - *operate*: async function that runs the operator, in place of ``trioperator.operator()``, with the same options

    Kopf's ``vault`` and ``loop`` do not exist.
    """

    ready_flag: Flag | None = None
    stop_flag: Flag | None = None
    registry: OperatorRegistry | None = None
    settings: OperatorSettings | None = None
    operate: Callable[..., Awaitable[None]] | None = None
