"""Amendments of others to a managed webhook configuration: injected CAs, amended fields, and when to repair them.

Whoever changes a webhook is overwritten within a second or two, and later if that goes on. Some controllers never give
up: they exempt the namespaces of the control plane, for example. Such a fight is ended: what comes back the same again
and again, and still sends reviews here, is written again only now and then.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._model.jsontypes import JsonObject

# Before what others have changed is written again: at once, and later if they have changed it again within a while.
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)
#: Seconds without a change by others after which the next one is the first again, and between repairs in a fight.
CALM: Final = 600.0
# How often the same change must have come back after a repair to count as a fight.
_RETURNS: Final = 3

# Annotations by which controllers are asked to set the CA of webhooks that have none of their own.
_INJECTORS: Final = frozenset(
    {
        "cert-manager.io/inject-ca-from",
        "cert-manager.io/inject-ca-from-secret",
        "cert-manager.io/inject-apiserver-ca",
        "service.beta.openshift.io/inject-cabundle",
    }
)
# The fields of webhooks that decide what is reviewed, and where: not the namespaces, of which platforms exempt some.
_DECISIVE: Final = frozenset(
    {
        *("name", "clientConfig", "rules", "failurePolicy", "matchPolicy", "objectSelector", "matchConditions"),
        *("sideEffects", "timeoutSeconds", "admissionReviewVersions", "reinvocationPolicy"),
    }
)
_NAMESPACES: Final = "namespaceSelector"
# Operators of selectors that leave namespaces out, and the label that none is without.
_EXEMPTING: Final = frozenset({"NotIn", "DoesNotExist"})
_EVERYWHERE: Final = ("kubernetes.io/metadata.name", "DoesNotExist")


class _Manager(msgspec.Struct):
    manager: str = ""
    time: datetime.datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}
    managed_fields: list[_Manager] = []


class StoredConfiguration(msgspec.Struct):
    """A webhook configuration as it is stored."""

    webhooks: list[JsonObject] = []
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)

    @property
    def is_injected(self) -> bool:
        """Whether another controller is asked to set the CAs."""
        return asks_for_injection(self.metadata.annotations)

    @property
    def manager(self) -> str:
        """The manager that has changed it last."""
        dated = [
            (each.time.timestamp(), each.manager) for each in self.metadata.managed_fields if each.time is not None
        ]
        return max(dated, default=(0.0, "others"))[1] or "others"


class Repairs:
    """When one configuration is repaired."""

    def __init__(self) -> None:
        self._change: list[JsonObject] | None = None  # what was overwritten last, and how often it has come back
        self._returned = 0
        self._fought: list[JsonObject] | None = None  # what has come back too often
        self._borne_since = -CALM  # when that was overwritten last
        self._last = -CALM  # when anything else was
        self._attempts = 0
        self._due: float | None = None

    def schedule(self, wanted: list[JsonObject], stored: list[JsonObject]) -> float:
        """Return when to write what is *wanted* in place of what others have stored."""
        if self.tolerates(wanted, stored):
            return self._borne_since + CALM
        now = trio.current_time()
        if self._due is None:
            self._attempts = self._attempts + 1 if now - self._last < CALM else 0
            self._due = now + _BACKOFF.delay(self._attempts)
        return self._due

    def note(self, wanted: list[JsonObject], stored: list[JsonObject]) -> None:
        """Note that what others have stored is about to be overwritten."""
        now, self._due = trio.current_time(), None
        if self.tolerates(wanted, stored):
            self._borne_since = now
            return
        self._returned = self._returned + 1 if stored == self._change else 0
        self._change, self._last = stored, now
        if self._returned >= _RETURNS:
            self._fought, self._borne_since = stored, now

    def is_fought(self, stored: list[JsonObject]) -> bool:
        """Return whether this has come back so often that others will not give up."""
        return stored == self._fought

    def tolerates(self, wanted: list[JsonObject], stored: list[JsonObject]) -> bool:
        """Return whether a change is left alone for a while: it comes back anyway, and reviews still come here."""
        return (
            self.is_fought(stored)
            and [hook.get("name") for hook in wanted] == [hook.get("name") for hook in stored]
            and not any(key in _DECISIVE for _, key in _compare(wanted, stored))
            and all(
                _exempts_some(*(hook.get(_NAMESPACES) or {} for hook in pair))
                for pair in zip(wanted, stored, strict=True)
            )
        )


def asks_for_injection(annotations: Iterable[str]) -> bool:
    """Return whether annotations ask another controller to set the CAs of webhooks."""
    return not _INJECTORS.isdisjoint(annotations)


def inject(wanted: list[JsonObject], stored: StoredConfiguration) -> list[JsonObject]:
    """Return the wanted webhooks with the CAs that another controller was asked to set, where they have none."""
    if not stored.is_injected or any(hook["clientConfig"].get("caBundle") for hook in wanted):
        return wanted
    bundles = {hook.get("name"): (hook.get("clientConfig") or {}).get("caBundle") for hook in stored.webhooks}
    return [
        {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}}
        if (bundle := bundles.get(hook["name"]))
        else hook
        for hook in wanted
    ]


def list_differences(wanted: list[JsonObject], stored: list[JsonObject]) -> str:
    """Return in words what others have changed: fields of webhooks, or which webhooks there are."""
    fields = list(dict.fromkeys(key for _, key in _compare(wanted, stored)))
    names, found = ({hook.get("name") for hook in hooks} for hooks in (wanted, stored))
    fields += ["missing webhooks"] if names - found else []
    fields += ["further webhooks"] if found - names else []
    return ", ".join(fields) or "the order"


def _exempts_some(wanted: JsonObject, stored: JsonObject) -> bool:
    """Return whether a selector of namespaces is as wanted, but for labels by which some are left out: not all."""
    expected, found = (selector.get("matchExpressions") or [] for selector in (wanted, stored))
    further = [each for each in found if each not in expected]
    return (
        (wanted.get("matchLabels") or {}) == (stored.get("matchLabels") or {})
        and all(each in found for each in expected)
        and all(each.get("operator") in _EXEMPTING for each in further)
        and all((each.get("key"), each.get("operator")) != _EVERYWHERE for each in further)
    )


def _compare(wanted: Iterable[JsonObject], stored: Iterable[JsonObject]) -> list[tuple[Any, str]]:
    """Return the names and fields in which webhooks that are in both differ."""
    found: Mapping[Any, JsonObject] = {hook.get("name"): hook for hook in stored}
    return [
        (hook["name"], key)
        for hook in wanted
        if (other := found.get(hook["name"])) is not None
        for key in sorted({*hook, *other})
        if hook.get(key) != other.get(key)
    ]
