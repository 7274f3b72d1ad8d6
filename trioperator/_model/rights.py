"""Rights to send requests: verbs for resources, as in the rules of roles. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from trioperator._model.resource import Resource
from trioperator._model.similar_names import find_similar

#: All verbs that mean anything in rules, in the order in which roles usually have them.
VERBS: Final = (
    *("*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("approve", "attest", "bind", "escalate", "impersonate", "sign", "use"),
)


class Rule(msgspec.Struct, frozen=True):
    """Verbs for one resource or subresource (``widgets/status``), for some names or for all."""

    group: str
    resource: str
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()

    def covers(self, other: Rule) -> bool:
        """Return whether the rule is for everything that the other one is for, whatever their verbs are."""
        return (
            self.group in ("*", other.group)
            and self.resource in ("*", other.resource)
            and (not self.names or (bool(other.names) and other.names <= self.names))
        )

    @property
    def kind(self) -> str:
        """The resource with its group, and with its subresource: ``widgets.example.com/status``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{plural}.{self.group}{slash}{subresource}" if self.group else self.resource

    def __str__(self) -> str:
        return f"{','.join(sorted(self.verbs, key=VERBS.index))}:{self.kind}"


def parse_rule(text: str) -> list[Rule]:
    """Parse verbs and kinds, such as ``get,list:pods,deployments.apps,pods/log``. Raises ValueError."""
    verbs, colon, names = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r}: it must be VERBS:KINDS, such as 'get,list:pods,deployments.apps'")
    given = frozenset(verb.strip() for verb in verbs.split(","))
    for unknown in sorted(given.difference(VERBS)):
        near = find_similar(unknown, VERBS)
        hint = f"did you mean {near}? The" if near else "the"
        raise ValueError(f"{unknown!r} is no verb: {hint} verbs are {', '.join(VERBS)}")
    rules = []
    for name in (each.strip() for each in names.split(",")):
        kind, slash, subresource = name.partition("/")
        plural, _, group = kind.partition(".")
        if not plural or plural != plural.lower() or bool(slash) is not bool(subresource):
            raise ValueError(f"{name!r}: a kind is PLURAL or PLURAL.GROUP, with /SUBRESOURCE if it is about one")
        rules.append(Rule(group, f"{plural}{slash}{subresource}", given))
    return rules


def find_kind(rule: Rule, resources: Collection[Resource]) -> Resource | None:
    """Return the kind of a rule; None if there is none, or with a star."""
    plural = rule.resource.partition("/")[0]
    return next((kind for kind in resources if (kind.group, kind.plural) == (rule.group, plural)), None)


def describe_unknown_kind(rule: Rule, resources: Collection[Resource]) -> str | None:
    """Return the kind of a rule with the one that may have been meant, if it is not among the *resources*."""
    name = rule.kind.partition("/")[0]
    if "*" in name or find_kind(rule, resources) is not None:
        return None
    known = [f"{kind.plural}.{kind.group}" if kind.group else kind.plural for kind in resources]
    near = next((each for each in known if each.startswith(f"{name}.")), None) or find_similar(name, known)
    return f"{name} (did you mean {near}?)" if near else name
