"""Tests for :mod:`trioperator._webhooks.tunnels`: the real pyngrok, with a program in the place of ngrok."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import trio

import trioperator
from tests.webhooks.admission import MANAGED, operating
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError

# What pyngrok needs of ngrok: its log, and its API for tunnels. The calls are written to a file.
NGROK = """\
    #!{python}
    import http.server, json, sys

    def note(*what):
        with open({log!r}, "a") as file:
            print(json.dumps(what), file=file)

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.respond(200, {{"endpoints": [], "tunnels": []}})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            note("connect", asked)
            url = "http://abc.ngrok.test"
            self.respond(201, {{"name": asked["name"], "url": url, "public_url": url, "uri": "/x", "proto": "https"}})

        def respond(self, code, content):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_):
            pass

    note("start", sys.argv[1:])
    if "bad" in sys.argv:
        print('t=1 lvl=eror msg="failed" err="The token is wrong."', flush=True)
        sys.exit(1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    for message in ("starting web service", "tunnel session started", "client session established"):
        print(f't=1 lvl=info msg="{{message}}" addr=127.0.0.1:{{server.server_port}}', flush=True)
    server.serve_forever()
"""

# In a process of its own: pyngrok leaves a thread behind, which ends on its own.
PROGRAM = """\
    import contextlib, json, sys
    import trio, trioperator
    import pyngrok.conf

    pyngrok.conf.DEFAULT_NGROK_CONFIG_PATH = {config!r}

    async def fn(review, *, webhook=None, headers=None, sslpeer=None):
        return {{"webhook": webhook, "asked": review}}

    async def main():
        tunnel = trioperator.WebhookNgrokTunnel(**json.loads(sys.argv[1]))
        async with contextlib.aclosing(tunnel(fn)) as addresses:
            address = await anext(addresses)
            print(json.dumps(address), flush=True)
            async with trio.open_nursery() as nursery:
                async def serve():
                    async for _ in addresses:
                        pass
                nursery.start_soon(serve)
                await trio.to_thread.run_sync(sys.stdin.readline)
                nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    except* trioperator.ConfigError as group:
        print(json.dumps(str(group.exceptions[0])), flush=True)
"""


class FakeNgrok:
    """A program in the place of ngrok, and a process with a tunnel by it."""

    def __init__(self, tmp_path: pathlib.Path) -> None:
        self.log = tmp_path / "calls.txt"
        self.binary = tmp_path / "ngrok"
        self.program = tmp_path / "program.py"
        text = textwrap.dedent(NGROK).format(python=sys.executable, log=str(self.log))
        self.binary.write_text(text)
        self.binary.chmod(0o755)
        self.program.write_text(textwrap.dedent(PROGRAM).format(config=str(tmp_path / "ngrok.yml")))

    @property
    def calls(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def start(self, **options: Any) -> subprocess.Popen[str]:
        """Start the process; its first line is the address."""
        given = json.dumps({"binary": str(self.binary), **options})
        return subprocess.Popen(
            [sys.executable, str(self.program), given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NGROK_AUTHTOKEN": "", "no_proxy": "*"},
        )


async def test_reviews_are_served_behind_the_public_address_until_the_end(tmp_path: pathlib.Path) -> None:
    import httpx

    bench = FakeNgrok(tmp_path)
    with bench.start(path="hooks", token="my-token", region="eu") as process:
        assert process.stdout is not None
        address = json.loads(await trio.to_thread.run_sync(process.stdout.readline))
        (started, argv), (_, asked) = bench.calls
        local = asked["upstream"]["url"] if "upstream" in asked else f"http://localhost:{asked['addr']}"
        async with httpx.AsyncClient() as http:
            response = await http.post(f"{local}/hooks/check", json={"a": 1})
        await trio.to_thread.run_sync(process.communicate, "end\n")
        assert process.returncode == 0
    assert address == {"url": "https://abc.ngrok.test/hooks"}
    assert response.json() == {"webhook": "check", "asked": {"a": 1}}
    assert started == "start"
    assert [argv[argv.index(f"--{key}") + 1] for key in ("authtoken", "region")] == ["my-token", "eu"]
    with pytest.raises(OSError, match="failed"):
        await trio.open_tcp_stream("localhost", int(local.rpartition(":")[2]))


async def test_an_agent_that_does_not_start_is_explained(tmp_path: pathlib.Path) -> None:
    with FakeNgrok(tmp_path).start(token="bad") as process:
        output, _ = await trio.to_thread.run_sync(process.communicate, "end\n")
    assert "The ngrok tunnel cannot be opened: " in json.loads(output)
    assert "The token is wrong." in json.loads(output)


async def test_without_pyngrok_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyngrok.conf", None)

    async def fn(*_: Any, **__: Any) -> Any: ...

    with pytest.raises(ConfigError, match=r"install it by `pip install 'trioperator\[ngrok\]'`"):
        await anext(trioperator.WebhookNgrokTunnel()(fn))


def test_the_names_and_defaults_are_those_of_kopf() -> None:
    common = dict.fromkeys(("addr", "port", "path"))
    assert dataclasses.asdict(trioperator.WebhookAutoTunnel()) == common
    assert dataclasses.asdict(trioperator.WebhookNgrokTunnel()) == common | dict.fromkeys(("token", "region", "binary"))


async def test_an_automatic_tunnel_uses_a_server_where_the_cluster_is_recognized(cluster: Cluster) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None: ...

    await cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "docker-desktop"}})
    async with operating(cluster, registry, server=trioperator.WebhookAutoTunnel(path="hooks")):
        (hook,) = (await cluster.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
        url = hook["clientConfig"]["url"]
        assert url.startswith("https://host.docker.internal:")
        assert url.endswith("/hooks/check")


async def test_an_automatic_tunnel_is_by_ngrok_elsewhere(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None: ...

    monkeypatch.setitem(sys.modules, "pyngrok.conf", None)
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match="^WebhookNgrokTunnel needs pyngrok"), flatten_subgroups=True
    ):
        async with operating(cluster, registry, server=trioperator.WebhookAutoTunnel()):
            pass
