"""Handlers that cannot be called, share an id, can never match, or have no server."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.filters import ABSENT, PRESENT, MetaFilterToken, describe_split_name
from trioperator._handling.handlers.handler import ChangeHandler, Reason, ResourceHandler, SignatureError, unwrap
from trioperator._model.resource import Selector
from trioperator._tooling.checking.assigned_settings import find_assignments
from trioperator._tooling.checking.problems import Problem, problem_of
from trioperator._tooling.checking.sources import Source

# The end of a part of a field that is meant for an item of a list, or for all of them.
_ITEM: Final = re.compile(r"\[(\d+|\*|)\]$")


def find_handler_problems(registry: OperatorRegistry, sources: Iterable[Source]) -> Iterator[Problem]:
    """Yield all problems of the handlers themselves, in the order of the checks."""
    for handler, error in registry.find_errors():
        if isinstance(error, SignatureError):
            yield problem_of("arguments", error.fn, error.summary)
        else:
            yield problem_of("ids", handler.fn, str(error))
    resource_handlers = registry.resource_handlers()
    yield from _find_shared_ids(h for h in resource_handlers if isinstance(h, ChangeHandler))
    for handler in (*resource_handlers, *registry.webhook_handlers()):
        if text := describe_split_name(handler):
            yield problem_of("filters", handler.fn, text)
        elif text := _find_contradiction(handler):
            yield problem_of("filters", handler.fn, f"{handler} can never match: {text}.")
    webhooks = registry.webhook_handlers()
    if webhooks and not any(line for source in sources for line in find_assignments(source, "admission", "server")):
        yield problem_of(
            "webhooks",
            webhooks[0].fn,
            f"{webhooks[0]} needs an admission server, and nothing assigns settings.admission.server: do so in a"
            " startup handler, for example to trioperator.WebhookServer().",
        )


# -- ids


def _find_shared_ids(handlers: Iterable[ChangeHandler]) -> Iterator[Problem]:
    """Yield functions that share an id, and with it their progress on the same objects."""
    reported: set[int] = set()
    for first, second in itertools.combinations(handlers, 2):
        if id(second) in reported or first.id != second.id or _is_same_function(first, second):
            continue
        if _can_coincide(first, second) and _overlap(first.selector, second.selector):
            reported.add(id(second))
            text = (
                f"Two functions are handlers with the id {second.id!r} for {second.selector}, and share one progress,"
                " so that one that has to be tried again may not be: pass id=... to one of the decorators."
            )
            yield problem_of("ids", second.fn, text)


def _is_same_function(first: ChangeHandler, second: ChangeHandler) -> bool:
    return first.fn is second.fn or unwrap(first.fn) is unwrap(second.fn)


def _can_coincide(first: ChangeHandler, second: ChangeHandler) -> bool:
    """Return whether there are causes for both handlers."""
    if first.initial or second.initial:  # together with any change that was missed, deletions only if asked for
        deletes = [h for h in (first, second) if h.reason is Reason.DELETE]
        return not deletes or any(h.deleted for h in (first, second))
    return first.reason is None or second.reason is None or first.reason is second.reason


def _overlap(first: Selector, second: Selector) -> bool:
    """Return whether two selectors may select the same kind: they do unless they name different things."""
    for name in ("group", "version", "kind", "plural", "singular", "shortcut", "any_name"):
        one, other = getattr(first, name), getattr(second, name)
        if isinstance(one, str) and isinstance(other, str) and one != other:
            return False
    return True


# -- filters


def _find_contradiction(handler: ResourceHandler) -> str | None:
    """Return why no object can match the filters of a handler; None if one can, or if that cannot be seen."""
    if isinstance(handler, ChangeHandler) and _is_fixed(handler.old) and handler.old == handler.new:
        return f"old={_show(handler.old)} and new={_show(handler.new)} are the same, and only changes match"
    path = handler.field or ()
    item = next(filter(_ITEM.search, path), None)
    if item is not None:
        return f"its field has the key {item!r}, and items of lists are no fields: pass the field that has the list"
    if len(path) != 3 or path[0] != "metadata" or path[1] not in ("labels", "annotations"):
        return None
    wanted = _expected_value(handler)
    if not (wanted is None or callable(wanted) or isinstance(wanted, str | MetaFilterToken)):
        return f"value={_show(wanted)} is no string, as all {path[1]} are"
    filters: Mapping[str, Any] = getattr(handler, path[1]) or {}
    other = filters.get(path[2])
    if _contradict(wanted, other):
        return f"value={_show(wanted)} of the field contradicts {path[1]}={{{path[2]!r}: {_show(other)}}}"
    return None


def _expected_value(handler: ResourceHandler) -> Any:
    """Return what the field must be; None where it may be anything, as it only has to change."""
    if handler.value is None:
        return None if isinstance(handler, ChangeHandler) and handler.needs_change else PRESENT
    # A change matches by the value before it, too, while the labels are those after it.
    return None if isinstance(handler, ChangeHandler) and handler.needs_change else handler.value


def _contradict(one: Any, other: Any) -> bool:
    if one is None or other is None or callable(one) or callable(other):
        return False
    if one is ABSENT or other is ABSENT:
        return one is not other
    return PRESENT not in (one, other) and bool(one != other)


def _is_fixed(value: Any) -> bool:
    return not (value is None or value is PRESENT or callable(value))


def _show(value: Any) -> str:
    return value.name if isinstance(value, MetaFilterToken) else repr(value)
