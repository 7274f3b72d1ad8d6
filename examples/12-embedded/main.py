"""An operator as a part of another program: a web server that shows the objects, in the same event loop."""

import functools
import json
import os
from typing import Any

import hypercorn.config
import hypercorn.trio
import trio

import trioperator

registry = trioperator.OperatorRegistry()
fields: dict[str, Any] = {}


@trioperator.on.event("kopfexamples", registry=registry)
async def remember(name: str, type: str | None, spec: trioperator.Spec) -> None:
    if type == "DELETED":
        fields.pop(name, None)
    else:
        fields[name] = spec.get("field")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Respond with all objects: an ASGI application, which may as well be one of Quart's or Starlette's."""
    assert scope["type"] == "http"
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(fields).encode()})


async def main(*, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    config = hypercorn.config.Config()
    config.bind = [os.environ.get("BIND", "127.0.0.1:8080")]
    stopped = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = functools.partial(hypercorn.trio.serve, app, config, shutdown_trigger=stopped.wait)
        (url,) = await nursery.start(serve)
        task_status.started(url)
        await trioperator.operator(registry=registry, name="fields")  # until a signal stops it
        stopped.set()


if __name__ == "__main__":
    trioperator.configure()
    trio.run(main)
