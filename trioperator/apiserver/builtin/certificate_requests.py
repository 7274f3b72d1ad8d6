"""CertificateSigningRequests: what may change, and where their decisions are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..model.errors import invalid
from ..model.status_causes import StatusCause, duplicate, forbidden, invalid_value, required, unsupported

Object = Mapping[str, Any]

CERTIFICATE_REQUESTS: Final = ("certificates.k8s.io", "certificatesigningrequests")
_KIND: Final = "CertificateSigningRequest"
_DECISIONS: Final = ("Approved", "Denied")
_PATH: Final = "status.conditions"
_STATUSES: Final = ("False", "True", "Unknown")


def _conditions(obj: Object, *types: str) -> list[Any]:
    found = (obj.get("status") or {}).get("conditions") or []
    return [each for each in found if not types or each.get("type") in types]


# -- changes -------------------------------------------------------------------------------------------------------


def only_decided(new: Object, old: Object) -> dict[str, Any]:
    """Return the new object with nothing of it but metadata and conditions, as the subresource ``approval`` allows."""
    status = {**(old.get("status") or {}), "conditions": _conditions(new)}
    return {**old, "metadata": new["metadata"], "status": status}


def prepare_status(new: dict[str, Any], old: Object) -> None:
    """Restore the decisions in a new status, in place. Raises InvalidError if one was added."""
    for name in _DECISIONS:
        before, after = _conditions(old, name), _conditions(new, name)
        if len(after) > len(before):
            cause = forbidden(_PATH, f'updates may not add a condition of type "{name}"')
            raise invalid(_KIND, CERTIFICATE_REQUESTS[0], str(old["metadata"]["name"]), [cause])
        kept = iter(before if len(after) == len(before) else after)
        if before:
            conditions = [next(kept) if each.get("type") == name else each for each in _conditions(new)]
            new["status"] = {**new["status"], "conditions": conditions}


def stamp(new: dict[str, Any], old: Object, now: str) -> None:
    """Set the times of conditions that have none, in place."""
    if not _conditions(new):
        return
    since = {(each.get("type"), each.get("status")): each.get("lastTransitionTime") for each in _conditions(old)}
    conditions = [
        {
            **each,
            "lastUpdateTime": each.get("lastUpdateTime") or now,
            "lastTransitionTime": each.get("lastTransitionTime")
            or since.get((each.get("type"), each.get("status")))
            or now,
        }
        for each in _conditions(new)
    ]
    new["status"] = {**new["status"], "conditions": conditions}


# -- validation ----------------------------------------------------------------------------------------------------


def check_conditions(obj: Object) -> Iterable[StatusCause]:
    """Yield the errors of the conditions."""
    seen = set[str]()
    for at, condition in enumerate(_conditions(obj)):
        name, status = condition.get("type") or "", condition.get("status") or ""
        if not name:
            yield required(f"{_PATH}[{at}].type")
        allowed = ("True",) if name in {*_DECISIONS, "Failed"} else _STATUSES
        if not status:
            yield required(f"{_PATH}[{at}].status")
        elif status not in allowed:
            yield unsupported(f"{_PATH}[{at}].status", status, allowed)
        if name in _DECISIONS and seen & ({*_DECISIONS} - {name}):
            yield invalid_value(_PATH, name, "Approved and Denied conditions are mutually exclusive")
        if name in seen:
            yield duplicate(f"{_PATH}[{at}].type", name)
        seen.add(name)


def check_change(new: Object, old: Object) -> Iterable[StatusCause]:
    """Yield the errors of an update."""
    for name in (*_DECISIONS, "Failed"):
        if len(_conditions(new, name)) < len(_conditions(old, name)):
            yield forbidden(_PATH, f'updates may not remove a condition of type "{name}"')
    before = (old.get("status") or {}).get("certificate")
    if before and (new.get("status") or {}).get("certificate") != before:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")
