"""Webhooks for tests: functions of reviews by path; in memory, or on a real HTTPS server on loopback."""

from __future__ import annotations

import base64
import dataclasses
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import httpx
import msgspec
import trio
import trustme

from trioperator._concurrency.pulse import Pulse

Object = dict[str, Any]

AUTHORITY = trustme.CA()
BUNDLE = base64.b64encode(AUTHORITY.cert_pem.bytes()).decode()
HOST = "hooks.test"  # where webhooks are in memory
_OTHERS = {"kube-root-ca.crt", "default"}  # what a real server's controllers make in each namespace, some time or other


@dataclasses.dataclass
class Reply:
    """Response that is not just an object with status code 200."""

    content: Any = b""
    code: int = 200
    media: str = "application/json"


Handler = Callable[[Object], Any]  # of a review; returns an object, a Reply, or something to be awaited for that


def allow(review: Object, **response: Any) -> Object:
    """Return a response that allows the request."""
    uid = review["request"]["uid"]
    response = {"uid": uid, "allowed": True, **response}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def deny(review: Object, **response: Any) -> Object:
    """Return a response that denies the request."""
    return allow(review, **{"allowed": False, **response})


def patch(review: Object, *operations: Object, **response: Any) -> Object:
    """Return a response that patches the object."""
    encoded = base64.b64encode(msgspec.json.encode(operations)).decode()
    return allow(review, patchType="JSONPatch", patch=encoded, **response)


class Hooks(httpx.AsyncBaseTransport):
    """Webhooks by path, and the reviews that they received; also a transport for webhooks in memory."""

    def __init__(self, url: str = f"https://{HOST}") -> None:
        self.url = url
        self.handlers: dict[str, Handler] = {}
        self.asked: list[tuple[str, Object]] = []  # paths with queries, and reviews
        self.connections = 0
        self.open = 0  # connections at this moment
        self.closed = Pulse()

    def requests(self, path: str = "") -> list[Object]:
        """Return the requests of the reviews at the path."""
        return [review["request"] for target, review in self.asked if target.partition("?")[0].endswith(path)]

    async def answer(self, target: str, body: bytes) -> Reply:
        """Call the webhook."""
        review = msgspec.json.decode(body)
        if review.get("request", {}).get("name") in _OTHERS:
            return Reply(allow(review))  # at any moment, also before the case has said how the webhook answers
        self.asked.append((target, review))
        handler = self.handlers.get(target.partition("?")[0])
        if handler is None:
            return Reply(b"there is no such webhook", code=404, media="text/plain")
        answer = handler(review)
        if isinstance(answer, Awaitable):
            answer = await answer
        return answer if isinstance(answer, Reply) else Reply(answer)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Handle the request in memory."""
        reply = await self.answer(request.url.raw_path.decode(), await request.aread())
        return httpx.Response(reply.code, content=_bytes(reply), headers={"Content-Type": reply.media})


def _bytes(reply: Reply) -> bytes:
    return reply.content if isinstance(reply.content, bytes) else msgspec.json.encode(reply.content)


async def serve_hooks(
    hooks: Hooks,
    host: str = "127.0.0.1",
    *,
    certificate: trustme.LeafCert | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the webhooks on a port of the loopback interface, by default under a certificate of :data:`AUTHORITY`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (certificate or AUTHORITY.issue_cert(host)).configure_cert(context)

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        hooks.connections += 1
        hooks.open += 1
        try:
            await _serve_connection(hooks, stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass  # whoever does not trust the certificate goes away, or who has waited for too long
        finally:
            hooks.open -= 1
            hooks.closed.set()
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        listener = listeners[0].transport_listener
        assert isinstance(listener, trio.SocketListener)
        hooks.url = f"https://127.0.0.1:{listener.socket.getsockname()[1]}"
        task_status.started()


async def _serve_connection(hooks: Hooks, stream: trio.SSLStream[trio.SocketStream]) -> None:
    connection = h11.Connection(h11.SERVER)
    target, body = "", b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(65_536)))
        elif isinstance(event, h11.Request):
            target, body = event.target.decode(), b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            reply = await hooks.answer(target, body)
            content = _bytes(reply)
            headers = [("Content-Type", reply.media), ("Content-Length", str(len(content)))]
            await stream.send_all(connection.send(h11.Response(status_code=reply.code, headers=headers)) or b"")
            await stream.send_all(connection.send(h11.Data(data=content)) or b"")
            await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
            connection.start_next_cycle()
        else:
            return


def webhook(hooks: Hooks, path: str, *, name: str = "", **more: Any) -> Object:
    """Return a webhook of a configuration, by default for all writes of ConfigMaps."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}
    return {
        "name": name or f"{path.strip('/')}.conformance.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": hooks.url + path, "caBundle": BUNDLE},
        "rules": [rule],
        **more,
    }


def configuration(kind: str, name: str, *webhooks: Object) -> Object:
    """Return a configuration; *kind* is ``Mutating`` or ``Validating``."""
    api_version = "admissionregistration.k8s.io/v1"
    metadata = {"name": name}
    return {
        "apiVersion": api_version,
        "kind": f"{kind}WebhookConfiguration",
        "metadata": metadata,
        "webhooks": [*webhooks],
    }
