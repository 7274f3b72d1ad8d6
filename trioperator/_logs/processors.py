"""The processors of structlog that users add to the loggers of handlers and of the framework."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from trioperator._logs._structlog import DropEvent
from trioperator._logs.records import represent
from trioperator.errors import ConfigError

#: A processor of structlog: gets the standard library's logger, the name of the level, and the event dict.
Processor: TypeAlias = Callable[[Any, str, MutableMapping[str, Any]], Mapping[str, Any]]

_log: Final = logging.getLogger("trioperator.logs")


class _Processors:
    """The processors of the process. One that fails is passed over, with one message in the log."""

    def __init__(self) -> None:
        self.chosen: tuple[Processor, ...] = ()
        self._failed: set[int] = set()

    def choose(self, processors: Iterable[Processor]) -> None:
        chosen = tuple(processors)
        for processor in chosen:
            if not callable(processor):
                raise ConfigError(f"Log processors are functions, but {represent(processor)} is not callable.")
        self.chosen, self._failed = chosen, set()

    def process(self, logger: Any, level: str, entry: Any) -> Any:
        for index, processor in enumerate(self.chosen):
            try:
                result = processor(logger, level, entry)
                if not isinstance(result, Mapping):
                    raise TypeError(f"it must return the event dict, not {represent(result)}")
                entry = dict(result)
            except DropEvent:
                raise
            except Exception as error:  # noqa: BLE001 -- what users wrote must not fail whoever logs something
                if index not in self._failed:
                    self._failed.add(index)
                    text = "The log processor %s failed, and is passed over where it does: %s: %s"
                    _log.error(text, represent(processor), type(error).__name__, error)
        return entry


users_processors: Final = _Processors()


def set_log_processors(processors: Iterable[Processor]) -> None:
    """Set the processors of structlog for messages of handlers' loggers and of the framework, in place of earlier ones.

    ::

        def mask(logger, level, event):
            if "password" in event:
                event["password"] = "***"
            return event

        trioperator.set_log_processors([mask])

    They are called in this order, in whatever thread logs a message, before it is formatted or posted as a Kubernetes
    Event. Each gets the logger, the name of the level such as ``"info"``, and the event dict, and returns one:
    ``event`` is the message, ``positional_args`` its arguments if there are any, ``k8s_ref`` the reference of the
    object; all other keys are the message's own. ``structlog.DropEvent`` drops the message. Raises ConfigError if one
    of them is not callable.

    They apply to the whole process. See docs/command.md.
    """
    users_processors.choose(processors)
