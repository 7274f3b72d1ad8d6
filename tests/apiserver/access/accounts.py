"""Service accounts and their tokens, and the user that a request has."""

from __future__ import annotations

from typing import Any, Final

import httpx

from tests.apiserver.conftest import Answer, Guarded

GROUP: Final = "/apis/authentication.k8s.io/v1"
REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW: Final = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
AUDIENCE: Final = "https://kubernetes.default.svc"
ACCOUNTS: Final = "/api/v1/namespaces/default/serviceaccounts"
ACCOUNT: Final = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}


async def who_am_i(target: Guarded) -> Answer:
    return await target.request("POST", f"{GROUP}/selfsubjectreviews", REVIEW)


async def user_info(target: Guarded) -> dict[str, Any]:
    answer = await who_am_i(target)
    assert answer.code == 201, answer.content
    return dict(answer.content["status"]["userInfo"])


def bearing(guarded: Guarded, token: str) -> Guarded:
    return guarded.sending(("Authorization", f"Bearer {token}"))


async def make_account(guarded: Guarded, name: str = "robot") -> str:
    """Create a service account; return the path of its token subresource."""
    path = f"/api/v1/namespaces/{guarded.namespace}/serviceaccounts"
    answer = await guarded.request("POST", path, {"metadata": {"name": name}})
    assert answer.code == 201
    return f"{path}/{name}/token"


async def make_token(guarded: Guarded, path: str, **spec: Any) -> str:
    answer = await guarded.request("POST", path, {"spec": spec})
    assert answer.code == 201, answer.content
    return str(answer.content["status"]["token"])


async def review(guarded: Guarded, token: str, **spec: Any) -> dict[str, Any]:
    answer = await guarded.request("POST", f"{GROUP}/tokenreviews", {"spec": {"token": token, **spec}})
    assert answer.code == 201, answer.content
    return dict(answer.content["status"])


async def who_is(client: httpx.AsyncClient, token: str) -> str:
    """Return the name of the token's user, or the error message of the server."""
    response = await client.post(REVIEWS, json={}, headers={"Authorization": f"Bearer {token}"})
    content = response.json()
    return str(content["status"]["userInfo"]["username"] if response.status_code == 201 else content["message"])


async def request_token(client: httpx.AsyncClient, **spec: Any) -> str:
    response = await client.post(f"{ACCOUNTS}/robot/token", json={"spec": spec})
    assert response.status_code == 201, response.text
    return str(response.json()["status"]["token"])
