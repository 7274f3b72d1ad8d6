"""Webhook servers in tests, and certificates in files."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import trio
import trustme

import trioperator
from tests.webhooks.admission import make_review


class Serving:
    """A webhook server at work: its addresses, and what its function was called with."""

    def __init__(self) -> None:
        self.addresses: list[Any] = []
        self.calls: list[Any] = []
        self.seconds = 0.0

    async def fn(self, request: Any, **hints: Any) -> Any:
        self.calls.append(hints)
        await trio.sleep(self.seconds)
        return {"kind": "AdmissionReview", "response": {"uid": request["request"]["uid"], "allowed": True}}

    @property
    def url(self) -> str:
        return str(self.addresses[-1]["url"])

    def trust(self, *, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """Return a TLS context that trusts the newest CA only."""
        context = ssl.create_default_context(cadata=base64.b64decode(self.addresses[-1]["caBundle"]).decode())
        if client is not None:
            client.configure_cert(context)
        return context

    async def ask(self, path: str = "/check", *, client: trustme.LeafCert | None = None) -> httpx.Response:
        async with httpx.AsyncClient(verify=self.trust(client=client), timeout=30) as http:
            return await http.post(self.url.replace("host.test", "localhost") + path, json=make_review())


@contextlib.asynccontextmanager
async def serving(server: trioperator.WebhookServer, *, seconds: float = 60) -> AsyncIterator[Serving]:
    """Run a server, as an operator does, for some *seconds* at most."""
    state = Serving()

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        async with contextlib.aclosing(server(state.fn)) as addresses:  # type: ignore[type-var]
            async for address in addresses:
                state.addresses.append(address)
                if len(state.addresses) == 1:
                    task_status.started()

    with trio.fail_after(seconds):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield state
            nursery.cancel_scope.cancel(reason="the test")


def write_pair(folder: pathlib.Path, authority: trustme.CA, *names: str) -> dict[str, Any]:
    """Write a certificate and its key, and return the options for them."""
    made = authority.issue_cert(*names or ("localhost",))
    (folder / "cert.pem").write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
    (folder / "key.pem").write_bytes(made.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return {
        name: str(folder / file)
        for name, file in [("certfile", "cert.pem"), ("pkeyfile", "key.pem"), ("cafile", "ca.pem")]
    }


async def until(check: Callable[[], object]) -> None:
    while not check():  # noqa: ASYNC110 -- of files and logs there are no events
        await trio.sleep(0.02)
