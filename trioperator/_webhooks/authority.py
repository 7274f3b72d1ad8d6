"""The CAs of webhook servers: each is replaced in time by the next one, and both are trusted in between.

A CA is due when two thirds of its year are over. The next one is made known to all replicas a step before they trust
it, they trust it a step before they issue certificates by it, and they trust the old one for a step more. The times
follow from the next CA alone: all replicas change over at the same moment.

An administrator who deletes the Secret wants a new CA at once. The first replica that misses the Secret makes one, and
the others find it within one check of their files: by then, both are trusted (see :mod:`.server`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeVar

import msgspec
import trio

from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.threads import run_in_thread
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource
from trioperator._webhooks.issuing import AUTHORITY_LIFE, Authority, Validity, build_authority, check_authority
from trioperator.errors import ConfigError, ConflictError, ForbiddenError, NotFoundError, TrioperatorError

_SECRETS: Final = Resource("", "v1", "secrets")
_STEP: Final = datetime.timedelta(days=1)
# Seconds between messages that the Secret cannot be read or written.
_REPORT_INTERVAL: Final = 6 * 3600.0
_FIELDS: Final = {"current": ("tls.crt", "tls.key"), "next": ("next.crt", "next.key")}

T = TypeVar("T")
Step = Literal["announce", "promote", "replace"]


class Authorities(msgspec.Struct, frozen=True):
    """The CA of a webhook server, and the one that is about to replace it."""

    current: Authority
    next: Authority | None = None


class Phase(msgspec.Struct, frozen=True):
    """Which CA issues certificates at a time, the certificates that are trusted, and until when that is so."""

    issuer: Authority
    trusted: bytes
    end: datetime.datetime | None = None


def find_phase(known: Authorities, now: datetime.datetime) -> Phase:
    """Return the phase of a replacement, by the time since the next CA was made."""
    current, following = known.current, known.next
    if following is None:
        return Phase(current, current.certificate)
    start = Validity.read(following.certificate).start
    both = b"".join(each.certificate.strip() + b"\n" for each in (current, following))
    phases = (Phase(current, current.certificate), Phase(current, both), Phase(following, both))
    for number, phase in enumerate(phases, start=1):
        if now < start + number * _STEP:
            return Phase(phase.issuer, phase.trusted, start + number * _STEP)
    return Phase(following, following.certificate)


def find_step(known: Authorities, now: datetime.datetime) -> Step | None:
    """Return what is due: a next CA, its promotion when all use it, or one at once if there is no time left.

    A CA that was made by others is left to them.
    """
    if known.next is not None:
        return "promote" if find_phase(known, now).end is None else None
    validity = Validity.read(known.current.certificate)
    if not validity.is_own or not validity.is_due(now, AUTHORITY_LIFE):
        return None
    return "replace" if validity.is_early(now) or now + 3 * _STEP >= validity.end else "announce"


class OwnAuthorities:
    """The CAs of one webhook server for its hosts, in memory only."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = tuple(hosts)
        self._known: Authorities | None = None

    async def find_phase(self) -> Phase:
        """Return the phase at this time, after what is due was done."""
        self._known = await self._advance(self._known)
        return find_phase(self._known, wall_now())

    async def _advance(self, known: Authorities | None) -> Authorities:
        """Return the CAs after all changes that are due."""
        if known is None:
            return Authorities(await self._make())
        step = find_step(known, wall_now())
        return known if step is None else await self._take_step(known, step)

    async def _take_step(self, known: Authorities, step: Step) -> Authorities:
        if step == "promote" and known.next is not None:
            return Authorities(known.next)
        made = await self._make()
        return Authorities(known.current, made) if step == "announce" else Authorities(made)

    async def _make(self) -> Authority:
        return await in_thread(functools.partial(build_authority, wall_now(), self._hosts))


class SharedAuthorities(OwnAuthorities):
    """The CAs of all replicas, kept in a Secret (``namespace/name``). One of them replaces a CA, the others follow.

    A Secret that is missing is created, but for a CA that others have made: that is theirs to put back.
    """

    def __init__(self, client: ApiClient, secret: str) -> None:
        super().__init__()
        self._client = client
        self._secret = secret
        self._namespace, _, self._name = secret.partition("/")
        self._path = _SECRETS.get_path(namespace=self._namespace, name=self._name)
        self._reported_at = -math.inf
        self._logger = get_logger("trioperator.webhooks")

    async def _advance(self, known: Authorities | None) -> Authorities:
        """Read the Secret, and replace the CA if that is due.

        Raises ConfigError if the first Secret contains no CA, and what requests raise then.
        """
        try:
            secret = await self._find(known)
            known = await _parse(secret, self._secret)
            step = find_step(known, wall_now())
            if step is not None:
                with contextlib.suppress(ConflictError):  # another replica was faster: its CA is read next time
                    known = await self._store(await self._take_step(known, step), secret, step)
        except TrioperatorError as error:
            if known is None:
                raise
            self._report(error)
        else:
            self._reported_at = -math.inf
        return known

    async def _find(self, known: Authorities | None) -> JsonObject:
        """Return the Secret, which is created if it is missing.

        Of several replicas that create it at the same time, one succeeds, and the others take its CA.
        """
        try:
            return await self._client.get(self._path)
        except NotFoundError:
            if known is not None and not Validity.read(known.current.certificate).is_own:
                raise
        try:
            return await self._create()
        except ConflictError:
            return await self._client.get(self._path)

    def _report(self, error: TrioperatorError) -> None:
        if trio.current_time() < self._reported_at + _REPORT_INTERVAL:
            return
        self._reported_at = trio.current_time()
        if isinstance(error, ForbiddenError):
            text = "The CA in the Secret %s cannot be replaced, which takes the rights to create, get and patch it: %s"
        else:
            text = "The Secret %s cannot be read; the CA stays as it is: %s"
        self._logger.warning(text, self._secret, error)

    async def _store(self, wanted: Authorities, secret: JsonObject, step: Step) -> Authorities:
        metadata = {"resourceVersion": secret["metadata"]["resourceVersion"]}
        await self._client.patch(self._path, {"metadata": metadata, "data": _encode(wanted)})
        text = {"announce": "is about to be replaced", "promote": "has been replaced", "replace": "has been replaced"}
        self._logger.info("The CA for webhooks in the Secret %s %s.", self._secret, text[step])
        return wanted

    async def _create(self) -> JsonObject:
        data = {key: value for key, value in _encode(Authorities(await self._make())).items() if value is not None}
        metadata = {"name": self._name, "namespace": self._namespace}
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": data,
        }
        created: JsonObject = await self._client.post(_SECRETS.get_path(namespace=self._namespace), manifest)
        self._logger.info("Created a CA for webhooks in the Secret %s.", self._secret)
        return created


async def in_thread(fn: Callable[[], T]) -> T:
    """Call a function of keys and certificates in a thread, and return its result."""
    return await run_in_thread(fn, limiter=trio.to_thread.current_default_thread_limiter())


def _encode(authorities: Authorities) -> dict[str, str | None]:
    """Return the data of a Secret, as a merge patch."""
    data: dict[str, str | None] = {}
    for field, keys in _FIELDS.items():
        authority: Authority | None = getattr(authorities, field)
        parts = (None, None) if authority is None else (authority.certificate, authority.key)
        data |= {
            key: None if part is None else base64.b64encode(part).decode("ascii")
            for key, part in zip(keys, parts, strict=True)
        }
    return data


async def _parse(secret: JsonObject, name: str) -> Authorities:
    data = secret.get("data") or {}
    try:
        following = None if _FIELDS["next"][0] not in data else await _decode(data, *_FIELDS["next"])
        return Authorities(await _decode(data, *_FIELDS["current"]), following)
    except (KeyError, TypeError, binascii.Error, ValueError) as error:
        raise ConfigError(
            f"The Secret {name} contains no CA: tls.crt and tls.key must be its certificate and its private key. Delete"
            " the Secret to have a new CA created."
        ) from error


async def _decode(data: Any, *keys: str) -> Authority:
    authority = Authority(*(base64.b64decode(data[key], validate=True) for key in keys))
    await in_thread(functools.partial(check_authority, authority))
    return authority
