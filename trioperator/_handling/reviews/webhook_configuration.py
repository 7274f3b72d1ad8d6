"""Webhooks of managed configurations, and the interfaces of webhook servers. Pure.

A webhook is for one id of a handler. All fields are given with their defaults, so that a configuration can be compared
with the one that the API server has stored.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict
from urllib.parse import quote

import msgspec

from trioperator._handling.handlers.filters import ABSENT, PRESENT
from trioperator._handling.reviews.admission import AdmissionHandler, Headers, SSLPeer, WebhookType
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource

#: The last part of the path of the conversion webhook.
CONVERSION_PATH: Final = "convert"

_MAX_SEGMENT: Final = 150
# Limit of the stored rules of a webhook that are kept for kinds that are not served: CRDs may come and go.
_MAX_KEPT: Final = 100
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

HandlersOfResources = Mapping[AdmissionHandler, Iterable[Resource]]


class WebhookClientConfigService(TypedDict, total=False):
    """Service in the cluster where webhooks are served."""

    namespace: str | None
    name: str | None
    path: str | None
    port: int | None


class WebhookClientConfig(TypedDict, total=False):
    """Address of a webhook server, as it is in webhook configurations; ``caBundle`` is PEM in base64.

    The ids of handlers are appended to ``url`` or to the path of the service.
    """

    caBundle: str | None
    url: str | None
    service: WebhookClientConfigService | None


class WebhookFn(Protocol):
    """Function that a webhook server calls for each review, and whose result is the response.

    The review is an AdmissionReview or a ConversionReview. *webhook* is the id of the handler, which is the last part
    of the URL; without it, all handlers are called. Raises ReviewError if the review cannot be answered.
    """

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> JsonObject:
        """Return the response to a review."""
        ...


class WebhookServerProtocol(Protocol):
    """Webhook server or tunnel: an async generator function that serves reviews, and yields where they are served.

    It yields whenever its address has changed, and goes on serving between that.
    """

    def __call__(self, fn: WebhookFn, /) -> AsyncIterator[WebhookClientConfig]:
        """Serve reviews by *fn*."""
        ...


def is_webhook_suffix(name: str) -> bool:
    """Return whether names of webhooks may end like this: Kubernetes requires domain names of three parts."""
    return name.count(".") >= 1 and all(_LABEL.fullmatch(part) for part in name.split("."))


def build_webhooks(
    handlers: HandlersOfResources,
    client_config: Mapping[str, Any],
    *,
    type: WebhookType,
    suffix: str,
    persistent: bool | None = None,
    without_rules: bool = False,
) -> list[JsonObject]:
    """Return the webhooks of the handlers of one type, in the order of their declaration.

    Those with the same id are one webhook, with the options of all of them. If none of them has resources, there is no
    webhook, or one *without rules*: see :func:`keep_rules`. If *persistent* is given, only those have one that outlive
    the operator: it is what those do that do not say.
    """
    groups: dict[str, list[AdmissionHandler]] = {}
    for handler in handlers:
        is_kept = persistent is None or (persistent if handler.persistent is None else handler.persistent)
        if handler.type is type and is_kept:
            groups.setdefault(handler.id, []).append(handler)
    segments = make_segments(dict.fromkeys(handler.id for handler in handlers))
    return [
        {
            "name": f"{segments[name]}.{suffix}",
            "clientConfig": _make_client_config(client_config, name, segment=segments[name]),
            "rules": _make_rules(group, handlers),
            **_make_options(group),
        }
        for name, group in groups.items()
        if without_rules or any(True for handler in group for _ in handlers[handler])
    ]


class ServedKinds(msgspec.Struct, frozen=True):
    """The kinds that the API server is known to serve, as pairs of group and plural.

    There may be others in API groups that are *undiscovered*.
    """

    names: frozenset[tuple[str, str]] = frozenset()
    undiscovered: frozenset[str] = frozenset()

    def may_lack(self, rule: JsonObject) -> bool:
        """Return whether a rule is for kinds that are not known now: they may be served later, or served again.

        One with wildcards is not: it is for all kinds, and nobody but others writes it.
        """
        groups = rule.get("apiGroups") or ()
        plurals = [name.partition("/")[0] for name in rule.get("resources") or ()]
        if "*" in groups or "*" in plurals:
            return False
        return self.undiscovered.issuperset(groups) or self.names.isdisjoint(itertools.product(groups, plurals))


def keep_rules(webhooks: list[JsonObject], stored: list[JsonObject], served: ServedKinds) -> list[JsonObject]:
    """Return the webhooks with the stored rules for kinds that are not known now; none without any rules."""
    found = {hook.get("name"): hook.get("rules") or [] for hook in stored}
    joined = [{**hook, "rules": _join(hook["rules"], found.get(hook["name"], ()), served)} for hook in webhooks]
    return [hook for hook in joined if hook["rules"]]


def _join(rules: list[JsonObject], stored: Iterable[JsonObject], served: ServedKinds) -> list[JsonObject]:
    kept = (rule for rule in stored if rule not in rules and rule.get("apiGroups") and served.may_lack(rule))
    return [*rules, *itertools.islice(kept, _MAX_KEPT)]


def describe_removal(handler: AdmissionHandler, *, has_replicas: bool) -> str | None:
    """Return in a sentence that writes are not reviewed by a managed webhook once an operator stops, if it is so."""
    if has_replicas and handler.persistent is False:
        return (
            f"{handler} has persistent=False: each replica that stops removes it for all of them, and writes are"
            " not reviewed until another one has written it again. Leave the option out, as webhooks are persistent"
            " by default with replicas, or set it to True."
        )
    if not has_replicas and handler.persistent is None:
        return (
            f"{handler} is removed from the managed configuration when the operator stops: writes are not reviewed"
            " during each restart. Declare it with persistent=True, or with False if that is intended."
        )
    return None


def build_conversion_strategy(client_config: Mapping[str, Any]) -> JsonObject:
    """Return the ``spec.conversion`` of CRDs whose objects are converted at the address."""
    address = _make_client_config(client_config, CONVERSION_PATH, segment=CONVERSION_PATH)
    return {"strategy": "Webhook", "webhook": {"clientConfig": address, "conversionReviewVersions": ["v1"]}}


def find_segment(hook: Mapping[str, Any], client_config: Mapping[str, Any]) -> str | None:
    """Return the last part of the path of a webhook, if it is at the address, which is a Service."""
    service, found = client_config.get("service"), (hook.get("clientConfig") or {}).get("service")
    if not service or not found:
        return None
    ours, theirs = ((each.get("namespace"), each.get("name"), each.get("port") or 443) for each in (service, found))
    base, path = (service.get("path") or "").rstrip("/"), found.get("path") or ""
    segment = str(path).removeprefix(f"{base}/")
    return segment if ours == theirs and path != segment and segment and "/" not in segment else None


def _make_options(group: Sequence[AdmissionHandler]) -> JsonObject:
    first = group[0]
    selectors = [_make_object_selector(handler) for handler in group]
    namespaces = [handler.namespace_selector for handler in group]
    options: JsonObject = {
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "NoneOnDryRun" if any(handler.side_effects for handler in group) else "None",
        "failurePolicy": "Ignore" if all(handler.ignore_failures for handler in group) else "Fail",
        "matchPolicy": first.match_policy,
        # If handlers with one id differ, the operator selects the objects, as the API server cannot.
        "objectSelector": selectors[0] if all(each == selectors[0] for each in selectors) else {},
        "namespaceSelector": dict(namespaces[0]) if all(each == namespaces[0] for each in namespaces) else {},
        "timeoutSeconds": max(handler.review_timeout for handler in group),
    }
    if first.type is WebhookType.MUTATING:
        options["reinvocationPolicy"] = first.reinvocation_policy
    if all(handler.match_conditions == first.match_conditions for handler in group) and first.match_conditions:
        conditions = first.match_conditions.items()
        options["matchConditions"] = [{"name": name, "expression": expression} for name, expression in conditions]
    return options


def _make_rules(group: Iterable[AdmissionHandler], handlers: HandlersOfResources) -> list[JsonObject]:
    rules: list[JsonObject] = []
    for handler in group:
        for resource in sorted(handlers[handler], key=lambda resource: tuple(resource)):
            rule = {
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "resources": _make_names_of_resources(resource.plural, handler.subresource),
                "operations": sorted(handler.operations) or ["*"],
                "scope": "*",
            }
            if rule not in rules:
                rules.append(rule)
    return rules


def _make_names_of_resources(plural: str, subresource: str | None) -> list[str]:
    if subresource is None:
        return [plural]
    return [plural, f"{plural}/*"] if subresource == "*" else [f"{plural}/{subresource}"]


def _make_object_selector(handler: AdmissionHandler) -> JsonObject:
    """Return the selector with those label filters that the API server can evaluate: all but functions."""
    expressions: list[JsonObject] = []
    for key, wanted in (handler.labels or {}).items():
        if wanted is PRESENT:
            expressions.append({"key": key, "operator": "Exists"})
        elif wanted is ABSENT:
            expressions.append({"key": key, "operator": "DoesNotExist"})
        elif not callable(wanted):
            expressions.append({"key": key, "operator": "In", "values": [str(wanted)]})
    return {"matchExpressions": expressions} if expressions else {}


def _make_client_config(config: Mapping[str, Any], id: str, *, segment: str) -> JsonObject:
    """Return the address of one webhook, with the id of its handler as the last part of the path.

    Paths of services consist of domain names, so these have the *segment* in place of the id.
    """
    made: JsonObject = {key: copy.copy(value) for key, value in config.items() if value is not None}
    if made.get("url"):
        made["url"] = f"{made['url'].rstrip('/')}/{quote(id, safe='/')}"
    if made.get("service"):
        service = {key: value for key, value in made["service"].items() if value is not None}
        made["service"] = {"port": 443, **service, "path": f"{(service.get('path') or '').rstrip('/')}/{segment}"}
    return made


def make_segments(ids: Iterable[str]) -> dict[str, str]:
    """Return unique domain names by the ids of handlers: parts of the names of webhooks, and paths of services."""
    segments: dict[str, str] = {}
    for handler_id in ids:
        segment = ".".join(_make_labels(handler_id)) or "webhook"
        if segment in segments.values() or len(segment) > _MAX_SEGMENT:
            digest = hashlib.sha256(handler_id.encode()).hexdigest()[:8]
            segment = f"{segment[:_MAX_SEGMENT].rstrip('.-')}-{digest}"
        segments[handler_id] = segment
    return segments


def _make_labels(id: str) -> Iterator[str]:
    for part in re.split(r"[./]", id.lower()):
        plain = re.sub(r"[^a-z0-9-]", lambda match: f"{ord(match[0]):x}", part.replace("_", "-")).strip("-")
        if plain:
            yield plain
