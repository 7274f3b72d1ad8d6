"""Policy rules of roles: what they allow, and whether some cover others. Pure.

The syntax is ``PolicyRule``'s in ``rbac.authorization.k8s.io/v1``: ``*`` matches everything, subresources are
``pods/log`` or ``*/scale``, and a path may end with ``*``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..model.quoting import quote_all
from .attributes import Attributes

Words = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Rule of a role."""

    verbs: Words = ()
    groups: Words = ()
    resources: Words = ()
    names: Words = ()
    urls: Words = ()


EVERYTHING = (
    PolicyRule(verbs=("*",), groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), urls=("*",)),
)


def parse_rules(rules: Any) -> tuple[PolicyRule, ...]:
    """Return the rules of a stored role; invalid ones are skipped."""
    return tuple(_parse(rule) for rule in rules or () if isinstance(rule, Mapping))


def _parse(rule: Mapping[str, Any]) -> PolicyRule:
    def words(field: str) -> Words:
        return tuple(str(word) for word in rule.get(field) or ())

    return PolicyRule(
        verbs=words("verbs"),
        groups=words("apiGroups"),
        resources=words("resources"),
        names=words("resourceNames"),
        urls=words("nonResourceURLs"),
    )


def allows(rule: PolicyRule, wanted: Attributes) -> bool:
    """Return whether the rule allows the request."""
    if not _has(rule.verbs, wanted.verb):
        return False
    if not wanted.is_resource:
        return any(_url_covers(url, wanted.path) for url in rule.urls)
    return (
        _has(rule.groups, wanted.group)
        and _names_resource(rule.resources, wanted.full_resource)
        and (not rule.names or wanted.name in rule.names)
    )


def _has(words: Words, word: str) -> bool:
    return word in words or "*" in words


def _names_resource(resources: Words, wanted: str) -> bool:
    if _has(resources, wanted):
        return True
    _, slash, subresource = wanted.partition("/")
    return bool(slash) and f"*/{subresource}" in resources


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url.rstrip("*")))


def find_missing(held: Sequence[PolicyRule], given: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return the parts of the *given* rules that the *held* ones do not cover, each for one verb and one resource.

    Each part is covered by one held rule or not at all.
    """
    parts = (part for rule in given for part in _break_down(rule))
    return [part for part in parts if not any(_covers(rule, part) for rule in held)]


def _break_down(rule: PolicyRule) -> Iterable[PolicyRule]:
    names: Iterable[Words] = [(name,) for name in rule.names] or [()]
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in names:
                    yield PolicyRule(verbs=(verb,), groups=(group,), resources=(resource,), names=name)
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), urls=(url,))


def _covers(rule: PolicyRule, part: PolicyRule) -> bool:
    if not _has(rule.verbs, part.verbs[0]):
        return False
    if part.urls:
        return not rule.names and any(_url_covers(url, part.urls[0]) for url in rule.urls)
    return (
        _has(rule.groups, part.groups[0])
        and _names_resource(rule.resources, part.resources[0])
        and (not rule.names or (bool(part.names) and part.names[0] in rule.names))
    )


def describe_missing(missing: Iterable[PolicyRule]) -> str:
    """Return the rules as lines of the error message: grouped by resource, sorted."""
    verbs: dict[PolicyRule, list[str]] = {}
    alone: list[PolicyRule] = []
    for rule in missing:
        if rule.urls:
            alone.append(rule)
        else:
            verbs.setdefault(dataclasses.replace(rule, verbs=()), []).extend(rule.verbs)
    together = [dataclasses.replace(rule, verbs=tuple(found)) for rule, found in verbs.items()]
    return "\n".join(sorted({_describe(rule) for rule in (*alone, *together)}))


def _describe(rule: PolicyRule) -> str:
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": rule.verbs,
    }
    shown = (f"{field}:{quote_all(words)}" for field, words in fields.items() if words)
    return "{" + ", ".join(shown) + "}"
