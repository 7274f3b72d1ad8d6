"""Health endpoints, as probes and people read them: ``/healthz``, ``/livez`` and ``/readyz``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    "healthz": ("ping", "log", "etcd"),
    "livez": ("ping", "log", "etcd"),
    "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"),
}


def is_check(endpoint: str, name: str) -> bool:
    """Return whether the endpoint has this check."""
    return name in _CHECKS[endpoint]


def health_of(endpoint: str, query: Mapping[str, str]) -> str:
    """Return the health; with ``verbose``, of each check, without the one to ``exclude``."""
    if "verbose" not in query:
        return "ok"
    excluded = query.get("exclude", "")
    lines = [f"[+]{name}{' excluded:' if name == excluded else ''} ok" for name in _CHECKS[endpoint]]
    if excluded and not is_check(endpoint, excluded):
        lines.append(f'warn: some health checks cannot be excluded: no matches for "{excluded}"')
    return "\n".join([*lines, f"{endpoint} check passed", ""])
