"""Kubernetes Events about objects, which ``kubectl describe`` shows.

They are posted in the background: in handlers, async or sync, and in functions that these call, posting never waits,
and API errors are only logged. Outside of handlers, the functions raise LookupError. See docs/events.md.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from trioperator._handling.arguments.context import Recorder, current_recorder
from trioperator._logs.records import to_text
from trioperator._model.references import build_object_reference
from trioperator.helpers import _clients

KubeObjects: TypeAlias = Any
Backoffs: TypeAlias = float | Iterable[float] | None


def event(objs: KubeObjects, *, type: str, reason: str, message: str = "", backoffs: Backoffs = None) -> None:
    """Post an event about one or several objects.

    - *objs*: the body of an object, an object of a client library such as ``kubernetes``, or an iterable of them
    - *type*: ``"Normal"``, ``"Warning"``, or any other word
    - *reason*: why it is posted, in one word such as ``"Scaled"``
    - *message*: text for people; the middle of a text above 1,024 bytes, Kubernetes' limit, is left out
    - *backoffs*: seconds before each retry; default: ``settings.posting.default_backoffs``

    ::

        @trioperator.on.create("kopfexamples")
        def create_fn(body, **_):
            trioperator.event(body, type="Normal", reason="Created", message="All is there.")

    Equal events are counted, many similar ones are combined, and if there are too many about one object, the later ones
    are left out. Events about events are skipped.

    Raises LookupError outside of handlers, and in startup and cleanup handlers; TypeError if *objs* are not objects.
    """
    _post(objs, _Event(type, reason, message, backoffs))


def info(objs: KubeObjects, *, reason: str, message: str = "", backoffs: Backoffs = None) -> None:
    """Post an event of the type "Normal", if ``settings.posting.level`` is INFO or lower: see :func:`event`."""
    _post(objs, _Event("Normal", reason, message, backoffs), level=logging.INFO)


def warn(objs: KubeObjects, *, reason: str, message: str = "", backoffs: Backoffs = None) -> None:
    """Post an event of the type "Warning", if ``settings.posting.level`` is WARNING or lower: see :func:`event`."""
    _post(objs, _Event("Warning", reason, message, backoffs), level=logging.WARNING)


def exception(
    objs: KubeObjects,
    *,
    reason: str = "",
    message: str = "",
    exc: BaseException | None = None,
    backoffs: Backoffs = None,
) -> None:
    """Post an event of the type "Error" about an exception, by default the one that is being handled.

    *reason* is by default the name of the exception's class; its text is appended to *message*. The event is posted if
    ``settings.posting.level`` is ERROR or lower: see :func:`event`.
    """
    error = sys.exception() if exc is None else exc
    text = "" if error is None else to_text(error)
    parts = [part for part in (to_text(message), text) if part]
    event = _Event("Error", reason or type(error).__name__, " ".join(parts), backoffs)
    _post(objs, event, level=logging.ERROR)


class _Event(NamedTuple):
    type: str
    reason: str
    message: str
    backoffs: Backoffs


def _post(objs: KubeObjects, event: _Event, *, level: int | None = None) -> None:
    recorder = _get_recorder()
    posting = recorder.posting
    if not posting.enabled or (level is not None and level < posting.level):
        return
    texts = {"type": to_text(event.type), "reason": to_text(event.reason), "message": to_text(event.message)}
    for obj in _clients.walk(objs, readable=True):
        reference = build_object_reference(_clients.as_owner(obj))
        recorder.record(reference, **texts, backoffs=event.backoffs)


def _get_recorder() -> Recorder:
    try:
        return current_recorder.get()
    except LookupError:
        raise LookupError(
            "Events can be posted only by handlers of a running operator, except for startup and cleanup handlers,"
            " and only in tasks and threads that have the context of the handler."
        ) from None
