"""Conditions in the status of objects, by the conventions of the Kubernetes API.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._model.patch import Patch

_TYPE: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_REASON, _MAX_MESSAGE = 1024, 32768
_STATUSES: Final = {
    True: "True",
    False: "False",
    None: "Unknown",
    "True": "True",
    "False": "False",
    "Unknown": "Unknown",
}


class Conditions(Mapping[str, Mapping[str, Any]]):
    """Conditions of an object, by their types: those in its status, and those that are set here.

    ::

        conditions = trioperator.Conditions(body, patch)
        conditions.set("Ready", False, reason="Progressing", message="1 of 3 replicas are ready.")

    Handlers of reconciling get one as the argument ``conditions``. Changes are stored with *patch*: conditions of
    other types stay as they are, also those that others set at the same time. Where nothing differs, nothing is stored.
    """

    def __init__(self, body: Mapping[str, Any], patch: Patch) -> None:
        self._body = body
        self._patch = patch
        self._wanted: dict[str, dict[str, Any] | None] = {}

    def __getitem__(self, type: str) -> Mapping[str, Any]:
        return self._collect()[type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._collect())

    def __len__(self) -> int:
        return len(self._collect())

    @property
    def wanted_types(self) -> frozenset[str]:
        """The types of the conditions that were set or removed here."""
        return frozenset(self._wanted)

    def set(self, type: str, status: bool | str | None, *, reason: str, message: str = "") -> None:
        """Set the condition of a type.

        *status* is True, False or None, or "True", "False" or "Unknown". *reason* is a word in CamelCase for programs,
        *message* a text for people. ``observedGeneration`` is the generation of the object as the handler sees it;
        ``lastTransitionTime`` is now if the status differs from that before, and else stays.

        Raises ValueError for what the API conventions do not allow.
        """
        _check(type, status, reason=reason, message=message)
        condition: dict[str, Any] = {"type": type, "status": _STATUSES[status], "reason": reason, "message": message}
        generation = (self._body.get("metadata") or {}).get("generation")
        if generation is not None:
            condition["observedGeneration"] = generation
        condition["lastTransitionTime"] = _now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self._want(type, condition)

    def remove(self, type: str) -> None:
        """Remove the condition of a type, if there is one."""
        self._want(type, None)

    def _want(self, type: str, condition: dict[str, Any] | None) -> None:
        self._wanted[type] = condition
        differs = _merge(_conditions_of(self._body), self._wanted) is not None
        if differs and self._store not in self._patch.fns:
            self._patch.fns.append(self._store)

    def _store(self, body: Any) -> None:
        merged = _merge(_conditions_of(body), self._wanted)
        if merged is not None:
            body["status"] = {**(body.get("status") or {}), "conditions": merged}

    def _collect(self) -> dict[str, Mapping[str, Any]]:
        present = _conditions_of(self._body)
        merged = _merge(present, self._wanted)
        return {found["type"]: found for found in (present if merged is None else merged) if "type" in found}


def _now() -> datetime.datetime:
    """Return the wall time, in threads and outside of Trio too."""
    for find in (wall_now, lambda: trio.from_thread.run_sync(wall_now)):
        with contextlib.suppress(RuntimeError):
            return find()
    return datetime.datetime.now(datetime.UTC)


def _conditions_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = (body.get("status") or {}).get("conditions")
    return [dict(each) for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []


def _merge(present: list[dict[str, Any]], wanted: Mapping[str, dict[str, Any] | None]) -> list[dict[str, Any]] | None:
    """Return the conditions with those that are wanted, in their order; None if nothing differs."""
    left, merged = dict(wanted), []
    for before in present:
        if before.get("type") not in left:
            merged.append(before)
        elif (condition := left.pop(before["type"])) is not None:
            merged.append(_follow(before, condition))
    merged += [condition for condition in left.values() if condition is not None]
    return None if merged == present else merged


def _follow(before: Mapping[str, Any], condition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition that keeps the transition time of the previous one if the status is the same."""
    since = before.get("lastTransitionTime")
    if since is None or before.get("status") != condition["status"]:
        return {**before, **condition}
    return {**before, **condition, "lastTransitionTime": since}


def check_type(type: object) -> None:
    """Raise ValueError for what is no type of a condition."""
    if not isinstance(type, str) or not _TYPE.fullmatch(type):
        raise ValueError(f"A condition has the type {type!r}: it must be a word in CamelCase, such as 'Ready'.")


def _check(type: str, status: object, *, reason: str, message: str) -> None:
    check_type(type)
    if not (status is None or isinstance(status, bool | str)) or status not in _STATUSES:
        raise ValueError(f"{type} has the status {status!r}: it must be True, False or 'Unknown'.")
    if not isinstance(reason, str) or not _REASON.fullmatch(reason) or len(reason) > _MAX_REASON:
        raise ValueError(f"{type} has the reason {reason!r}: it must be a word in CamelCase, such as 'Progressing'.")
    if not isinstance(message, str) or len(message) > _MAX_MESSAGE:
        raise ValueError(f"{type} has a message that is no string of at most {_MAX_MESSAGE} characters.")
