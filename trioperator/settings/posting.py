"""Settings of Kubernetes Events."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import ClassVar

from trioperator.settings.rules import (
    BOOLEAN,
    DELAYS,
    INTEGER,
    NAME_PREFIX,
    QUALIFIED_NAME,
    TEXT,
    Section,
    section,
    setting,
)


@section
class PostingSettings(Section):
    """Settings of Kubernetes Events about objects: see docs/settings.md."""

    _path: ClassVar[str] = "settings.posting"

    enabled: bool = setting(True, BOOLEAN)
    """Whether events are posted: by ``event()`` and the related functions, and from log messages; default: True."""

    loggers: bool = setting(True, BOOLEAN)
    """Whether messages of the loggers of handlers are posted as events; default: True (Kopf since 1.44: False)."""

    level: int = setting(logging.INFO, INTEGER)
    """Lowest level of log messages that are posted, and of ``info()``, ``warn()`` and ``exception()``; default:
    ``logging.INFO``."""

    default_backoffs: Iterable[float] = setting((1, 1, 2, 3, 5, 8, 13, 21), DELAYS)
    """Seconds before each retry of an event without ``backoffs=``, instead of ``networking.error_backoffs``; default:
    1, 1, 2, 3, 5, 8, 13, 21. A single number is one delay. Other events wait meanwhile."""

    logging_backoffs: Iterable[float] = setting((1, 1, 2, 3, 5), DELAYS)
    """The same for log messages; default: 1, 1, 2, 3, 5."""

    reporting_component: str = setting("trioperator", QUALIFIED_NAME)
    """Name of the operator in events, which kubectl shows; default: "trioperator" (Kopf: "kopf")."""

    reporting_instance: str | None = setting(None, TEXT.or_none())
    """Name of the instance in events; default: None, the operator's identity (Kopf: "dev")."""

    event_name_prefix: str = setting("trioperator-event-", NAME_PREFIX)
    """Prefix of the names of events, which the API server completes; default: "trioperator-event-" (Kopf:
    "kopf-event-")."""
