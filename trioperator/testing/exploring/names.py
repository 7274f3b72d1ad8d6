"""Values by the names of fields: replicas, images, quantities, schedules, and what users add."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


class _Rule(NamedTuple):
    """Values of fields with such names, of a type of schemas."""

    pattern: re.Pattern[str]
    type: str
    values: Sequence[Any]


class _Addition(NamedTuple):
    """A strategy of the user's for fields with such names, of a type of schemas or of any."""

    pattern: re.Pattern[str]
    type: str | None
    strategy: SearchStrategy[Any]


def _rule(pattern: str, type: str, *values: Any) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), type, values)


_KNOWN: Final = (
    _rule(r"replicas|size|count|workers|instances|shards|nodes", "integer", 0, 1, 2, 3, 5),
    _rule(r"port$|nodePort|targetPort", "integer", 80, 8080, 9000),
    _rule(r"(seconds|minutes|hours)$|timeout", "integer", 1, 10, 60),
    _rule(r"image$", "string", "nginx", "nginx:1.29", "registry.example.com/web:2"),
    _rule(r"schedule$|cron", "string", "*/5 * * * *", "0 3 * * *"),
    _rule(r"^(memory|storage|size|capacity)$|(Size|Storage|Memory)$", "string", "1Gi", "2Gi", "512Mi"),
    _rule(r"^cpu$", "string", "100m", "500m", "1"),
    _rule(r"host(name)?s?$|domain$", "string", "a.example.com", "b.example.com"),
    _rule(r"ur[il]$|endpoint$", "string", "https://a.example.com", "https://b.example.com"),
    _rule(r"email$", "string", "a@example.com", "b@example.com"),
    _rule(r"version$|tag$", "string", "1.0", "1.1", "2.0"),
    _rule(r"time_?zone$", "string", "Etc/UTC", "Europe/Berlin"),
    _rule(r"path$", "string", "/", "/a", "/b"),
    _rule(r"protocol$", "string", "TCP", "UDP"),
    _rule(r"namespace$", "string", "default"),
    _rule(
        r"(matchLabels|labels|annotations|nodeSelector|selector)$", "object", {}, {"tier": "a"}, {"tier": "b", "x": "y"}
    ),
)
_added: list[_Addition] = []


def register(name: str, strategy: SearchStrategy[Any], *, type: str | None = None) -> None:
    """Draw the values of fields with a matching name from a strategy, where the limits of the schema allow them.

    ::

        from hypothesis import strategies as st
        from trioperator.testing import strategies

        strategies.register("flavor", st.sampled_from(["m1.small", "m1.large"]))

    *name* is a regular expression that matches the whole name, in upper or lower case. *type* is that of the schema:
    ``string``, ``integer``, ``number``, ``boolean``, ``array`` or ``object``; any by default. The last one wins.
    """
    _added.insert(0, _Addition(re.compile(name, re.IGNORECASE), type, strategy))


def unregister_all() -> None:
    """Forget what was registered."""
    _added.clear()


def find_strategy(
    name: str, schema: Mapping[str, Any], *, fits: Callable[[Any], bool] = lambda _: True
) -> SearchStrategy[Any] | None:
    """Return a strategy for those values of a field that fit, by its name; None if that says nothing."""
    if not name:
        return None
    for added in _added:
        if added.pattern.fullmatch(name) and added.type in (None, schema.get("type")):
            return added.strategy.filter(fits)
    if schema.get("properties"):
        return None
    for rule in _KNOWN:
        if rule.type == schema.get("type") and rule.pattern.search(name):
            values = [value for value in rule.values if fits(value)]
            return st.sampled_from(values) if values else None
    return None
