"""Permissions that an operator needs, as RBAC rules: by its handlers, its namespaces and its options. Pure.

Least privilege: what an operator does not do is not in the rules, and no rule has a star but where a selector is for
everything. Requests of users' functions with clients of their own are known where they say so (``rights=``).
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator._handling import guard
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.handlers.handler import (
    ChangeHandler,
    EventHandler,
    Handler,
    ResourceHandler,
    SpawningHandler,
    unwrap,
)
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._kube.status_schemas import is_custom
from trioperator._model.resource import EVERYTHING, Resource, Selector, select_resources
from trioperator._model.rights import VERBS, Rule, describe_unknown_kind, find_kind
from trioperator._model.signatures import read_signature
from trioperator._runtime.watching.scope import Scope
from trioperator.errors import ConfigError

_API: Final = "rbac.authorization.k8s.io"
_VERBS: Final = ("get", "list", "watch", "create", "update", "patch")
_WATCHED: Final = frozenset({"list", "watch"})
# With these, references to owners are written.
_OWNING: Final = frozenset({"*", "create", "update", "patch"})
_WEBHOOKS: Final = "admissionregistration.k8s.io"
_CRDS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
# Where Kubernetes Events about cluster-scoped objects are.
_DEFAULT_NAMESPACE: Final = "default"
# What loads None: the second one since Python 3.15.
_LOADS: Final = frozenset({"LOAD_CONST", "LOAD_COMMON_CONSTANT"})


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an operator that its permissions depend on.

    ``scanning`` is for watching CRDs and namespaces, ``events`` for posting Kubernetes Events. ``peering`` is the kind
    and the name of the peering object, ``lease`` the namespace and the name of the Lease, if there are any: with
    several ``shards``, the prefix of the names of Leases. ``managed`` is the name of the managed webhook
    configurations, ``conversions`` is for managed conversions of CRDs, ``ca_secret`` is the namespace and the name
    of the Secret with the CA of webhooks. ``migrated`` are the groups and plurals of the kinds whose objects the
    operator writes in their storage version. ``rules`` are for what handlers do with their clients, which is not known
    here.
    """

    scope: Scope = Scope()
    scanning: bool = True
    events: bool = True
    peering: tuple[Resource, str] | None = None
    lease: tuple[str, str] | None = None
    shards: int = 1
    managed: str | None = None
    conversions: bool = False
    ca_secret: tuple[str, str] | None = None
    migrated: tuple[tuple[str, str], ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The only namespaces in which permissions are needed; None if they can be any."""
        if self.scope.is_exact or not (self.scope.clusterwide or self.scanning):
            return self.scope.exact
        return None


class Permissions(msgspec.Struct, frozen=True):
    """Rules for the whole cluster, and for single namespaces; ``problems`` is what may be missing, in sentences."""

    cluster: tuple[Rule, ...]
    namespaces: Mapping[str, tuple[Rule, ...]]
    problems: tuple[str, ...] = ()


def list_permissions(
    handlers: Collection[Handler], resources: Collection[Resource], requirements: Requirements
) -> Permissions:
    """List the permissions of an operator with these handlers, in a cluster with these resource kinds.

    Raises ConfigError for a selector of a kind that is not among them if it does not say enough, and UserCodeError if a
    selector function fails.
    """
    collected = _Collected(requirements.namespaces)
    problems: dict[str, None] = {}
    has_cluster_kinds = False
    for handler in handlers:
        problems |= dict.fromkeys(_add_rules(collected, handler.rights, resources, owner=str(handler)))
        if not isinstance(handler, ResourceHandler):
            continue
        kinds, problem = _find_kinds(handler.selector, resources, restricted=collected.namespaces is not None)
        if problem is not None:
            problems[problem] = None
        if isinstance(handler, AdmissionHandler | ConversionHandler):
            collected.add(_rules_of_webhooks(handler, kinds, requirements), namespaced=False)
            continue
        for kind in kinds:
            collected.add(_rules_of(handler, kind), namespaced=kind.namespaced is not False)
            has_cluster_kinds = has_cluster_kinds or kind.namespaced is False
        if isinstance(handler, ReconcileHandler):
            problems |= dict.fromkeys(_add_related(collected, handler, resources))
    problems |= dict.fromkeys(_add_rules(collected, requirements.rules, resources))
    if any(isinstance(handler, ResourceHandler) for handler in handlers):
        _add_operator(collected, requirements, handlers=handlers, has_cluster_kinds=has_cluster_kinds)
    collected.add(_rules_of_migrations(requirements.migrated), namespaced=False)
    if requirements.lease is not None:
        namespace, name = requirements.lease
        collected.places.setdefault(namespace, []).extend(_rules_of_leases(name, shards=requirements.shards))
    if requirements.ca_secret is not None:
        collected.add_named("", "secrets", requirements.ca_secret, verbs={"get", "patch"})
    places = {place: _reduce(rules) for place, rules in collected.places.items()}
    return Permissions(places.pop(None, ()), {str(p): rules for p, rules in places.items()}, tuple(problems))


def _add_related(collected: _Collected, handler: ReconcileHandler, resources: Collection[Resource]) -> Iterator[str]:
    """Add what a handler needs for the kinds that it owns or watches. Yields what is unclear, in sentences."""
    related = [(owned.selector, _WATCHED | {"get", "create", "patch", "delete"}) for owned in handler.owns]
    related += [(mapper.selector, _WATCHED) for mapper in handler.mappers]
    for selector, verbs in related:
        kinds, problem = _find_kinds(selector, resources, restricted=collected.namespaces is not None)
        for kind in kinds:
            collected.add([Rule(kind.group, kind.plural, verbs)], namespaced=kind.namespaced is not False)
        if problem is not None:
            yield problem


def _add_rules(
    collected: _Collected, rules: Collection[Rule], resources: Collection[Resource], *, owner: str | None = None
) -> Iterator[str]:
    """Add rules that were declared. Yields in sentences which kinds do not exist, if *owner* is who has declared them.

    A kind that does not exist is taken for namespaced.
    """
    for rule in rules:
        kind = find_kind(rule, resources)
        collected.add([rule], namespaced=kind is None or kind.namespaced is not False)
        unknown = None if owner is None else describe_unknown_kind(rule, resources)
        if unknown is not None:
            yield f"The rights= of {owner} name a kind that does not exist in the cluster: {unknown}."


def _rules_of_leases(name: str, *, shards: int) -> list[Rule]:
    group, resource, verbs = "coordination.k8s.io", "leases", frozenset({"get", "update"})
    creating = Rule(group, resource, frozenset({"create"}))  # the name of what is created is not checked
    if shards == 1:
        return [creating, Rule(group, resource, verbs, frozenset({name}))]
    names = frozenset(f"{name}-{shard}" for shard in range(shards))
    members = Rule(group, resource, frozenset({"patch"}), frozenset({f"{name}-members"}))
    return [creating, Rule(group, resource, verbs, names), members]


def _rules_of_migrations(kinds: Collection[tuple[str, str]]) -> list[Rule]:
    """Return what writing stored objects again needs: of all namespaces, as a CRD is for all of them."""
    if not kinds:
        return []
    group, plural = _CRDS
    names = frozenset(f"{each}.{of}" for of, each in kinds)
    return [
        *(Rule(of, each, frozenset({"list", "update"})) for of, each in kinds),
        Rule(group, plural, frozenset({"get", "patch"}), names),
        Rule(group, f"{plural}/status", frozenset({"patch"}), names),
        Rule("storagemigration.k8s.io", "storageversionmigrations", _WATCHED | {"get", "create"}),
    ]


class _Collected:
    """Rules by the namespace that they are for; None is for the whole cluster."""

    def __init__(self, namespaces: frozenset[str] | None) -> None:
        self.namespaces = namespaces
        self.places: dict[str | None, list[Rule]] = {}

    def add(self, rules: Collection[Rule], *, namespaced: bool) -> None:
        places: Iterable[str | None] = (None,)
        if namespaced and self.namespaces is not None:
            places = sorted(self.namespaces)
        for place in places:
            self.places.setdefault(place, []).extend(rules)

    def add_named(self, group: str, resource: str, place: tuple[str, str], *, verbs: Iterable[str]) -> None:
        """Add the rules for one object, by its namespace and name, that the operator creates."""
        namespace, name = place
        self.places.setdefault(namespace, []).extend(
            [
                Rule(group, resource, frozenset({"create"})),  # the name of what is created is not checked
                Rule(group, resource, frozenset(verbs), frozenset({name})),
            ]
        )


def _add_operator(
    collected: _Collected, requirements: Requirements, *, handlers: Collection[Handler], has_cluster_kinds: bool
) -> None:
    """Add what the operator itself needs, whatever its handlers do."""
    scope = requirements.scope
    if requirements.scanning:
        collected.add([Rule(*_CRDS, _WATCHED)], namespaced=False)
        if not scope.clusterwide and not scope.is_exact:
            collected.add([Rule("", "namespaces", _WATCHED)], namespaced=False)
    if requirements.events:
        posting = Rule("", "events", frozenset({"create", "patch"}))
        # Webhooks are called for objects of all namespaces.
        is_called_anywhere = any(isinstance(each, AdmissionHandler | ConversionHandler) for each in handlers)
        collected.add([posting], namespaced=not is_called_anywhere)
        if has_cluster_kinds and not is_called_anywhere and collected.namespaces is not None:
            collected.places.setdefault(_DEFAULT_NAMESPACE, []).append(posting)
    if requirements.peering is not None:
        kind, name = requirements.peering
        written = f"{kind.plural}/status" if "status" in kind.subresources else kind.plural
        rules = [
            Rule(kind.group, kind.plural, _WATCHED),
            Rule(kind.group, written, frozenset({"patch"}), frozenset({name})),
        ]
        collected.add(rules, namespaced=kind.namespaced is not False)


# Kinds.


def _find_kinds(
    selector: Selector, resources: Collection[Resource], *, restricted: bool
) -> tuple[Collection[Resource], str | None]:
    """Return the kinds of a selector, and a description of the problem, if any. Its star is a kind of its own."""
    selection = guard.call("The selector {}", selector, select_resources, selector, resources)
    if selector.any_name is EVERYTHING:
        group = "*" if selector.group is None else selector.group
        star = Resource(group, "", "*", verbs=frozenset(_VERBS))
        problem = f"{selector} is for all kinds of objects: the role allows to read all of them, Secrets included."
        return [star, *(r for r in selection.resources if restricted and r.namespaced is False)], problem
    if selection.resources or any(selector.matches(resource) for resource in resources):
        return selection.resources, selection.problem
    if not selector.is_specific:
        return (), f"No resource matches {selector} for now: the rules have nothing for it."
    plural = selector.plural or selector.any_name
    if selector.group is None or not isinstance(plural, str) or plural != plural.lower():
        raise ConfigError(
            f"The group and the plural of the resource {selector} are not known. Pass its CustomResourceDefinition"
            " (trioperator manifests and bundle: --crds or --other-crds; trioperator rbac: --embedded --apply, or"
            " create it in the cluster), or select it by group and plural."
        )
    assumed = Resource(selector.group, "", plural, subresources=frozenset({"status"}), verbs=frozenset(_VERBS))
    problem = (
        f"The resource {selector} does not exist in the cluster: it is taken for namespaced, with a status, and with"
        f" the plural {plural!r}."
    )
    return [assumed], problem


# Handlers.


def _rules_of(handler: ResourceHandler, kind: Resource) -> list[Rule]:
    """Return the rules that a handler needs for the objects of one kind, and the operator on its behalf."""
    keeps_records = _keeps_records(handler)
    if keeps_records and "patch" not in kind.verbs:
        return []  # it is not called
    takes_patch = _stores(handler) and (_takes_patch(handler) or getattr(handler, "condition", None) is not None)
    returns = _stores(handler) and not isinstance(handler, ReconcileHandler) and _returns_something(handler)
    has_status = "status" in kind.subresources
    verbs = set(_WATCHED)
    if takes_patch or isinstance(handler, ChangeHandler | SpawningHandler | ReconcileHandler):
        verbs.add("get")  # to read the object again: between handlers, and after a conditional patch has failed
    if keeps_records or takes_patch or (returns and not has_status):
        verbs.add("patch")
    rules = [Rule(kind.group, kind.plural, frozenset(verbs & kind.verbs))]
    if _may_own(handler):
        rules.append(Rule(kind.group, f"{kind.plural}/finalizers", frozenset({"update"})))  # to block its deletion
    # Results of its sub-handlers; conditions that the operator writes itself, where the schema of a kind has them.
    writes_status = isinstance(handler, ChangeHandler)
    if isinstance(handler, ReconcileHandler):
        writes_status = handler.kstatus and is_custom(kind)
    if has_status and (takes_patch or returns or writes_status):
        rules.append(Rule(kind.group, f"{kind.plural}/status", frozenset({"patch"})))
    return rules


def _rules_of_webhooks(
    handler: AdmissionHandler | ConversionHandler, kinds: Collection[Resource], requirements: Requirements
) -> list[Rule]:
    """Return the rules for what the operator manages on behalf of a handler that is called through a webhook."""
    verbs = frozenset({"get", "patch"})
    if isinstance(handler, ConversionHandler):
        names = {f"{kind.plural}.{kind.group}" for kind in kinds if kind.plural != "*"}
        return [Rule(*_CRDS, verbs, frozenset({name})) for name in sorted(names) if requirements.conversions]
    rules: list[Rule] = []
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        if requirements.managed is not None:
            rules.append(Rule(_WEBHOOKS, plural, frozenset({"create"})))  # the name of what is created is not checked
            # They are watched by their names, which list and watch need in a field selector.
            rules.append(Rule(_WEBHOOKS, plural, verbs | {"list", "watch"}, frozenset({requirements.managed})))
    return rules


def _keeps_records(handler: ResourceHandler) -> bool:
    """Return whether the operator patches the objects for its own purposes: for the progress, or for a finalizer."""
    return isinstance(handler, ChangeHandler) or (isinstance(handler, SpawningHandler) and handler.finalizer)


def _stores(handler: ResourceHandler) -> bool:
    """Return whether the patch of the handler is stored, and its result if that is not desired children."""
    return isinstance(handler, ChangeHandler | EventHandler | SpawningHandler | ReconcileHandler)


def _may_own(handler: ResourceHandler) -> bool:
    """Return whether the objects can become owners of others: of children, or of what the function itself writes."""
    if isinstance(handler, ReconcileHandler) and handler.owns:
        return True
    return any(not rule.verbs.isdisjoint(_OWNING) for rule in handler.rights)


def _takes_patch(handler: Handler) -> bool:
    """Return whether the function can use ``patch``. By convention, ``**_`` is for arguments that are not used."""
    if not handler.signature.names.isdisjoint(("patch", "conditions")):
        return True
    if not handler.signature.takes_all:
        return False
    try:
        parameters = read_signature(handler.fn).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.kind is p.VAR_KEYWORD and not p.name.startswith("_") for p in parameters)


def _returns_something(handler: Handler) -> bool:
    """Return whether the function may return anything but None, by its bytecode."""
    code = getattr(unwrap(handler.fn), "__code__", None)
    if code is None:
        return True
    before: dis.Instruction | None = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return True
        if step.opname == "RETURN_VALUE":
            is_none = before is not None and before.opname in _LOADS and before.argval is None
            if not is_none or step.is_jump_target:
                return True
        before = step
    return False


# Rules and roles.


def _reduce(rules: Collection[Rule]) -> tuple[Rule, ...]:
    """Merge the rules for the same resource and names, and leave out what other rules grant already."""
    merged: dict[tuple[str, str, frozenset[str]], Rule] = {}
    for rule in rules:
        key = (rule.group, rule.resource, rule.names)
        before = merged.get(key)
        merged[key] = rule if before is None else msgspec.structs.replace(rule, verbs=rule.verbs | before.verbs)
    reduced = []
    for rule in merged.values():
        granted = {
            verb for other in merged.values() if other is not rule and other.covers(rule) for verb in other.verbs
        }
        if rule.verbs - granted:
            reduced.append(msgspec.structs.replace(rule, verbs=rule.verbs - granted))
    return tuple(sorted(reduced, key=lambda rule: (rule.group, rule.resource, sorted(rule.names))))


def make_roles(permissions: Permissions, *, name: str, account: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    """Return manifests of the roles, and of their bindings to a service account if its namespace and name are given."""
    roles: list[dict[str, Any]] = []
    places: list[tuple[str | None, tuple[Rule, ...]]] = [(None, permissions.cluster), *permissions.namespaces.items()]
    for namespace, rules in places:
        if not rules:
            continue
        prefix = "Cluster" if namespace is None else ""
        metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        role = {"apiVersion": f"{_API}/v1", "kind": f"{prefix}Role", "metadata": metadata}
        roles.append({**role, "rules": _make_rules(rules)})
        if account is not None:
            given = {"apiGroup": _API, "kind": f"{prefix}Role", "name": name}
            subject = {"kind": "ServiceAccount", "name": account[1], "namespace": account[0]}
            roles.append({**role, "kind": f"{prefix}RoleBinding", "roleRef": given, "subjects": [subject]})
    return roles


def _make_rules(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return rules as in manifests: one for the resources of a group that have the same verbs and names."""
    resources: dict[tuple[str, frozenset[str], frozenset[str]], list[str]] = {}
    for rule in rules:
        resources.setdefault((rule.group, rule.verbs, rule.names), []).append(rule.resource)
    return [
        {"apiGroups": [group], "resources": plurals}
        | ({"resourceNames": sorted(names)} if names else {})
        | {"verbs": sorted(verbs, key=VERBS.index)}
        for (group, verbs, names), plurals in resources.items()
    ]
