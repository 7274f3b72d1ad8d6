"""Reviews of an operator of our own, by the bridge."""

from __future__ import annotations

import json
import pathlib
import socket

from tests.world.playing import Play, play
from tests.world.reviews import review

OPERATOR = """
import kopf


@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(port=PORT, host="name.of.a.service.svc")


@kopf.on.mutate("configmaps")
def fn(body, old, patch, operation, **_):
    if old and old["data"]["field"] == "fixed":
        raise kopf.AdmissionError("the field is fixed")
    patch["data"] = {"seen": f"{operation} {body['data']['field']}"}
"""


async def test_what_webhooks_respond_is_recorded_with_their_patches(tmp_path: pathlib.Path) -> None:
    checkout, home = tmp_path / "own", tmp_path / "bridge"
    checkout.mkdir()
    home.mkdir()
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    (checkout / "main.py").write_text(OPERATOR.replace("PORT", str(port)))

    async def act(play: Play) -> None:
        play.watches = False
        play.masks.append("CREATE")
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
        async with play.running("--standalone", "--all-namespaces", "main.py"):
            await review(play, f"https://localhost:{port}/fn", {**config, "data": {"field": "a"}})
            old = {**config, "data": {"field": "fixed"}}
            await review(play, f"https://localhost:{port}/fn", {**config, "data": {"field": "b"}}, old=old)

    played = await play(act, "bridge", checkout, home)
    created, updated = (json.loads(line)["response"] for (line,) in played.states.values())
    assert created["patched"]["data"] == {"field": "a", "seen": "<…> a"}
    assert not updated["allowed"]
    assert updated["status"]["message"] == "the field is fixed"
