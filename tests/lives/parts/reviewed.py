"""Objects, and a kind that webhooks review, whose servers share a CA that is replaced: each of them is always trusted.

There are no objects of that kind, and so no reviews. Where the API server would call a replica, by the webhook
configurations of the cluster, the two shake hands in memory.
"""

from __future__ import annotations

import base64
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio

import trioperator
from tests.lives.parts.base import Part

if TYPE_CHECKING:
    from tests.lives.operators import Operator

_SECRET, _CONFIGURATION, _HOST = "webhooks", "hooks.lives.example.com", "hooks.default.svc"
# Seconds between checks of the Secret, until API servers have taken up a change of the configuration, and until a
# server that is about to serve counts as ready.
_INTERVAL, _LAG, _READY = 10.0, 5, 5.0
# Seconds after the trouble in which all replicas have found the CA of the Secret.
_CALM: Final = 100.0
# OpenSSL's X509_V_FLAG_NO_CHECK_TIME: it has the real time.
_ANY_TIME: Final = 0x200000
# Troubles by which the Secret or the configuration is not read or written in time, or goes back.
_OBSTACLES: Final = ("late start", "restore", "reads", "writes", "denials", "releases", "freeze", "slow")


class _Server(trioperator.WebhookServer):
    """The server of one replica behind a Service, and what it serves at present, since when."""

    def __init__(self) -> None:
        # Not a name: Trio would look it up in a thread of its own, and the clock does not stand still for these.
        super().__init__(addr="127.0.0.1", host=_HOST, ca_secret=f"default/{_SECRET}", file_check_interval=_INTERVAL)
        self.files: Any = None
        self.since = 0.0

    async def __call__(self, fn: Any) -> AsyncIterator[Any]:
        serving: Any = super().__call__(fn)
        try:
            async with contextlib.aclosing(serving):
                async for config in serving:
                    config["service"]["port"] = 443  # which all replicas have
                    yield config
        finally:
            self.files = None

    async def _serve(self, *args: Any, tls: Any, **options: Any) -> None:
        if self.files is None:
            self.files, self.since = tls, trio.current_time()
        await super()._serve(*args, tls=tls, **options)


class Reviewed(Part):
    """Passes, and tickets, of which there are none."""

    kind, plural = "Pass", "passes"
    first = "p0"
    others: ClassVar[tuple[str, ...]] = ("Ticket",)
    shared: ClassVar[frozenset[str]] = frozenset({"secrets", "validatingwebhookconfigurations"})

    def __init__(self, life: Any, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.servers: list[_Server] = []
        self.refused: list[float] = []
        self._tried: dict[tuple[ssl.SSLContext, bytes], bool] = {}

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {"objects": {"p0": {"serial": "0"}}, "early": rng.random() < 0.5}

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        match rng.choice(["edit", "edit", "create", "replace_ca"]):
            case "edit":
                return "passes.edit", ("p0", {"serial": str(number)})
            case "create":
                return "passes.create", ("p0",)
            case _:
                return "passes.replace_ca", ()

    async def replace_ca(self) -> None:
        """Delete the Secret with the CA, as an administrator does who wants another one at once."""
        await self.life.cluster.delete("secrets", _SECRET, namespace="default")

    def configure(self, settings: trioperator.OperatorSettings) -> None:
        self.servers = [server for server in self.servers if server.files is not None]
        self.servers.append(_Server())
        settings.admission.server = self.servers[-1]
        settings.admission.managed = _CONFIGURATION

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who = operator.name

        @trioperator.on.validate("tickets", id="review", registry=registry)
        async def review(**_: Any) -> None: ...

        @trioperator.on.create("passes", id="admit", registry=registry, backoff=3)
        @trioperator.on.update("passes", id="admit", registry=registry, backoff=3)
        async def admit(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "admit", meta, seen=spec["serial"]):
                await self.work(retry)

    async def accompany(self) -> None:
        """Try each second whether the API server, which takes up changes a while later, trusts each server."""
        bundles: list[bytes] = []
        while True:
            bundles = [*bundles[-_LAG:], await self._find_bundle()]
            now = trio.current_time()
            ready = [each for each in self.servers if each.files is not None and now - each.since > _READY]
            if any(bundles[0] and not self._is_trusted(server.files.context, bundles[0]) for server in ready):
                self.refused.append(now)
            await trio.sleep(1)

    async def _find_bundle(self) -> bytes:
        found = await self.life.cluster.find("validatingwebhookconfigurations", _CONFIGURATION)
        hooks = (found or {}).get("webhooks") or [{"clientConfig": {}}]
        return base64.b64decode(hooks[0]["clientConfig"].get("caBundle") or "")

    def _is_trusted(self, context: ssl.SSLContext, bundle: bytes) -> bool:
        tried = (context, bundle)
        if tried not in self._tried:
            self._tried[tried] = _shake_hands(*tried)
        return self._tried[tried]

    async def settle(self) -> None:
        await self.settle_restored()

    async def check(self) -> None:
        late = [time for time in self.refused if time > self.life.end + _CALM]
        if refused := late or (self.refused if not self.life.has(*_OBSTACLES) else []):
            self.find(
                "not trusted",
                f"API servers do not trust a webhook server, {len(refused)} times since {refused[0]:.0f} s",
            )
        secret = await self.life.cluster.find("secrets", _SECRET, namespace="default")
        if secret is None or not await self._find_bundle():
            self.find("not trusted", "there is no CA for webhooks")
        for each in await self.objects():
            seen, serial = self.life.journal.last_seen("admit", each["metadata"]["name"]), each["spec"]["serial"]
            if seen != serial:
                self.find("not handled", f"{each['metadata']['name']} has {serial}, and the handler has seen {seen}")


def _shake_hands(context: ssl.SSLContext, bundle: bytes) -> bool:
    """Return whether a client that trusts these CAs can shake hands with a server."""
    requests, responses = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=bundle.decode())
    trusting.verify_flags |= _ANY_TIME
    client = trusting.wrap_bio(responses, requests, server_hostname=_HOST)
    for side in 3 * (client, context.wrap_bio(requests, responses, server_side=True)):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return True
