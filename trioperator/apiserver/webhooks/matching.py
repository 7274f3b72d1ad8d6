"""Webhook configurations, and matching of their webhooks with writes. Pure.

Each version of a configuration is parsed once (:func:`webhooks_of`); :func:`select` decides whether a webhook matches,
by its rules and selectors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..bodies.decoding import WriteOptions
from ..model.client_config import ClientConfig
from ..model.kinds import Kind
from ..model.selectors import LabelSelector, selector_of

# Subresources whose objects are of a kind of their own.
FOREIGN_KINDS: Final = {
    "binding": {"group": "", "version": "v1", "kind": "Binding"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}
_EXEMPT_GROUP: Final = "admissionregistration.k8s.io"  # so that no webhook can prevent its own removal

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """Attributes of a write for admission.

    ``kind`` is the request's. The objects are in its version; ``FOREIGN_KINDS`` have their own.
    """

    operation: str  # CREATE, UPDATE, DELETE
    kind: Kind
    namespace: str
    name: str
    subresource: str = ""
    new: Object | None = None
    old: Object | None = None
    options: WriteOptions = dataclasses.field(default_factory=WriteOptions)

    @property
    def is_exempt(self) -> bool:
        """Whether webhooks never apply to the object."""
        return self.kind.group == _EXEMPT_GROUP


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Operations and resources that a webhook matches."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]  # with their subresources
    scope: str = "*"

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> Rule:
        """Parse a rule."""
        resources = (str(resource).partition("/") for resource in rule.get("resources") or ())
        return cls(
            operations=frozenset(rule.get("operations") or ()),
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            resources=tuple((name, subresource) for name, _, subresource in resources),
            scope=str(rule.get("scope") or "*"),
        )

    def matches(self, attributes: AdmissionAttributes, kind: Kind) -> bool:
        """Return whether the rule matches the write, taken as one on that version of the kind."""
        return (
            self._has_scope(attributes)
            and not self.operations.isdisjoint(("*", attributes.operation))
            and not self.groups.isdisjoint(("*", kind.group))
            and not self.versions.isdisjoint(("*", kind.version))
            and any(
                name in {"*", kind.plural} and subresource in {"*", attributes.subresource}
                for name, subresource in self.resources
            )
        )

    def _has_scope(self, attributes: AdmissionAttributes) -> bool:
        if self.scope == "*":
            return True
        return attributes.kind.namespaced is (self.scope == "Namespaced")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Constraints of an admission policy, which is for the versions that they name only."""

    rules: tuple[Rule, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    matches_equivalents: bool = False

    @classmethod
    def of(cls, constraints: Mapping[str, Any], rules: str, name: str) -> Policy:
        """Parse the constraints of a policy or a binding for objects of the name; *rules* is the field of its rules."""
        found = (rule for rule in constraints.get(rules) or () if name in (rule.get("resourceNames") or (name,)))
        return cls(
            rules=tuple(map(Rule.of, found)),
            namespaces=selector_of(constraints.get("namespaceSelector") or {}),
            objects=selector_of(constraints.get("objectSelector") or {}),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Policy):
    """One webhook of one configuration."""

    id: str  # unique among all configurations
    name: str
    client: ClientConfig
    ignores_failures: bool
    is_reinvoked: bool
    allows_dry_run: bool
    timeout: int  # seconds
    versions: tuple[str, ...]  # of AdmissionReview
    conditions: tuple[tuple[str, str], ...]  # names and expressions


def webhooks_of(configuration: Mapping[str, Any]) -> list[Webhook]:
    """Return the webhooks of the configuration, which is valid and has its defaults set."""
    name = configuration["metadata"]["name"]
    hooks = configuration.get("webhooks") or ()
    return [_webhook(hook, f"{name}/{hook['name']}/{at}") for at, hook in enumerate(hooks)]


def _webhook(hook: Mapping[str, Any], identity: str) -> Webhook:
    return Webhook(
        id=identity,
        name=hook["name"],
        client=ClientConfig.of(hook["clientConfig"]),
        rules=tuple(Rule.of(rule) for rule in hook.get("rules") or ()),
        namespaces=selector_of(hook.get("namespaceSelector") or {}),
        objects=selector_of(hook.get("objectSelector") or {}),
        ignores_failures=hook.get("failurePolicy") == "Ignore",
        matches_equivalents=hook.get("matchPolicy") != "Exact",
        is_reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        allows_dry_run=hook.get("sideEffects") in {"None", "NoneOnDryRun"},
        timeout=int(hook.get("timeoutSeconds") or 10),
        versions=tuple(hook.get("admissionReviewVersions") or ()),
        conditions=tuple((item["name"], item["expression"]) for item in hook.get("matchConditions") or ()),
    )


def select(
    webhook: Policy,
    attributes: AdmissionAttributes,
    *,
    equivalents: Iterable[Kind],
    namespace: Mapping[str, Any] | None,
) -> Kind | None:
    """Return the version of the kind that the webhook matches, or None.

    ``equivalents`` are the other versions of the kind; ``namespace`` is the Namespace of the object.
    """
    if not _selects_namespace(webhook, attributes, namespace) or not _selects_object(webhook, attributes):
        return None
    if any(rule.matches(attributes, attributes.kind) for rule in webhook.rules):
        return attributes.kind
    if webhook.matches_equivalents:
        others = tuple(equivalents)
        for rule in webhook.rules:
            for kind in others:
                if rule.matches(attributes, kind):
                    return kind
    return None


def _selects_namespace(webhook: Policy, attributes: AdmissionAttributes, namespace: Mapping[str, Any] | None) -> bool:
    if not webhook.namespaces:
        return True
    if attributes.kind.resource == ("", "namespaces"):
        subject = attributes.old if attributes.subresource or attributes.new is None else attributes.new
        return subject is not None and webhook.namespaces.matches(subject)
    if not attributes.kind.namespaced:
        return True
    return namespace is not None and webhook.namespaces.matches(namespace)


def _selects_object(webhook: Policy, attributes: AdmissionAttributes) -> bool:
    if not webhook.objects:
        return True
    return any(obj is not None and webhook.objects.matches(obj) for obj in (attributes.new, attributes.old))
