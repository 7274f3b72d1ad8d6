"""Reviews of the webhooks of operators, whose names in a cluster nothing resolves: they are sent to this machine."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import httpx
import trio

from tests.world.playing import Play
from trioperator.apiserver.bodies.patching import apply_json_patch

_USER: Final = {"username": "me", "uid": "1", "groups": ["system:authenticated"], "extra": {}}
_SECONDS: Final = 60


async def review(
    play: Play, url: str, new: Mapping[str, Any], *, old: Mapping[str, Any] | None = None, **more: Any
) -> None:
    """Ask a webhook of the operator about an object, and record its response among the states.

    What a patch makes of an object counts, not the operations; with a denial, nothing.
    """
    request = describe_request(new, old) | more
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    found = await _post(play, url, {**kind, "request": request})
    answer: dict[str, Any] = found.json() if found.is_success else {"code": found.status_code}
    response = answer.get("response", {})
    if (patch := response.pop("patch", None)) and response["allowed"]:
        response["patched"] = apply_json_patch(
            json.dumps(request["object"]).encode(), json.loads(base64.b64decode(patch))
        )
    response.pop("patchType", None)
    line = json.dumps(answer, sort_keys=True)
    for mask in play.masks:
        line = re.sub(mask, "<…>", line)
    play.states[f"review {len(play.states)}"] = [line]


def describe_request(new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the request of a review of an object that is created, or updated if there is an *old* one."""
    group, _, version = new["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version}
    return {
        "uid": "1",
        "kind": {**kind, "kind": new["kind"]},
        "resource": {**kind, "resource": f"{new['kind'].lower()}s"},
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": _USER,
        "name": new["metadata"]["name"],
        "namespace": new["metadata"].get("namespace"),
        "object": {**new, "metadata": {"uid": "2", **new["metadata"]}},
        "oldObject": None if old is None else {**old, "metadata": {"uid": "2", **old["metadata"]}},
        "dryRun": False,
    }


async def _post(play: Play, url: str, content: Mapping[str, Any]) -> httpx.Response:
    """Send a request as soon as the operator accepts connections, with a certificate for any name."""
    async with httpx.AsyncClient(verify=False, timeout=_SECONDS) as client:
        while True:
            try:
                return await client.post(url, json=content)
            except httpx.ConnectError:
                if play.process is None or play.process.poll() is not None:
                    raise
            await trio.sleep(0.1)  # there is no event
