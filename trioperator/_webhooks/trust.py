"""CAs of other replicas in managed webhook configurations: kept for a while, as replicas replace each other.

In a rolling update, the old and the new replica serve behind one address, perhaps with different CAs: each with one of
its own, or while a Secret with a new one is on its way to the pods. The configuration must trust both, or the reviews
of one of them fail. So a replica adds its CA to those that are there, and leaves those that others add.

It does so for some minutes only: nobody tells when a CA is no longer needed, and whoever may change the
configuration could add one to stay.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import trio

from trioperator._model.jsontypes import JsonObject
from trioperator._webhooks.certificates import split_bundle

# Seconds for which a CA of others is kept: longer than it takes to replace a pod, or the Secrets in all pods.
_OVERLAP: Final = 600.0
# The maximum number of CAs of others that are kept.
_MAX_KEPT: Final = 8


class Trust:
    """The CAs of others in one configuration, and since when they have been there."""

    def __init__(self) -> None:
        self._seen: dict[bytes, float] = {}
        self._inherited: frozenset[bytes] | None = None
        self._own: Collection[bytes] = ()

    def join(
        self,
        wanted: list[JsonObject],
        stored: list[JsonObject] | None,
        *,
        others: list[JsonObject] | None = None,
        writes: bool = False,
    ) -> list[Any]:
        """Return the wanted webhooks with the CAs of others besides the server's own: what is to be stored.

        Those count that webhooks of the same address trust. Before one *writes*, CAs that were the server's own are
        dropped: others that need them add them again. Webhooks of *others* are to be served, too.
        """
        own = next(_split(wanted), [])
        if stored is None:
            return wanted
        wanted = _merge(wanted, others, stored) if others else wanted
        if not own:
            return wanted
        here = [find_address(hook) for hook in wanted]
        nearby = [hook for hook in stored if find_address(hook) in here]
        dropped = {*own, *(self._own if writes else ())}
        found = dict.fromkeys(cert for certs in _split(nearby) for cert in certs if cert not in dropped)
        now = trio.current_time()
        self._seen = {cert: self._seen.get(cert, now) for cert in found}
        if self._inherited is None:
            self._inherited = frozenset(found)
        if writes:
            self._own = own
        kept = [cert for cert in found if now < self._seen[cert] + _OVERLAP][:_MAX_KEPT]
        return _replace(wanted, [*kept, *own], nearby) if kept or others else wanted

    def find_expiry(self) -> float | None:
        """Return when the next CA of others is dropped, if there is one."""
        return min(self._seen.values()) + _OVERLAP if self._seen else None

    @property
    def has_successors(self) -> bool:
        """Whether CAs have been added since the first write: other replicas are there."""
        return not self._seen.keys() <= (self._inherited or frozenset())


def trusts_part(own: list[JsonObject], wanted: list[JsonObject], stored: list[JsonObject]) -> bool:
    """Return whether what is stored only lacks some of the server's own CAs, as while replicas replace a CA."""
    authorities = set(next(_split(own), []))
    same = [{**hook, "clientConfig": find_address(hook)} for hook in wanted] == [
        {**hook, "clientConfig": find_address(hook)} for hook in stored
    ]
    return same and all(not authorities.isdisjoint(certs) for certs in _split(stored))


def trusts_none(wanted: JsonObject, stored: JsonObject) -> bool:
    """Return whether a webhook at the server's address trusts none of its own CAs, though there are some."""
    if find_address(wanted) != find_address(stored):
        return False
    own, found = _split([wanted, stored])
    return bool(own) and set(own).isdisjoint(found)


def _merge(wanted: list[JsonObject], others: list[JsonObject], stored: list[JsonObject]) -> list[JsonObject]:
    """Return the webhooks with others' webhooks, in the order in which they are stored: all replicas agree on it."""
    order = [hook.get("name") for hook in stored]
    merged = [*wanted, *others]
    return sorted(merged, key=lambda hook: order.index(hook["name"]) if hook["name"] in order else len(order))


def _replace(wanted: list[JsonObject], certificates: list[bytes], nearby: list[JsonObject]) -> list[JsonObject]:
    """Return the webhooks with these certificates; in the order in which they are stored, if they all are."""
    bundle = base64.b64encode(b"".join(cert + b"\n" for cert in certificates)).decode("ascii")
    for hook, certs in zip(nearby, _split(nearby), strict=True):
        if set(certs) == set(certificates):
            bundle = hook["clientConfig"]["caBundle"]
            break
    return [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in wanted]


def find_address(hook: JsonObject) -> Any:
    """Return the address of a webhook, without its CA."""
    config = hook.get("clientConfig")
    return {key: value for key, value in config.items() if key != "caBundle"} if isinstance(config, dict) else None


def _split(hooks: Iterable[JsonObject]) -> Iterator[list[bytes]]:
    """Yield the certificates that each webhook trusts; none if they cannot be read."""
    for hook in hooks:
        try:
            yield split_bundle(base64.b64decode(hook["clientConfig"].get("caBundle") or "", validate=True))
        except (binascii.Error, ValueError, TypeError):
            yield []
