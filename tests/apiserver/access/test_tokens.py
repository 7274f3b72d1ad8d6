"""Tests for :mod:`trioperator.apiserver.access.tokens`: tokens are valid until they expire or are revoked."""

from __future__ import annotations

import base64
from typing import Final

import msgspec
import trio

from tests.apiserver.access.accounts import (
    ACCOUNT,
    AUDIENCE,
    REVIEWS,
    bearing,
    make_account,
    make_token,
    request_token,
    who_am_i,
    who_is,
)
from tests.apiserver.conftest import Guarded
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster

PODS: Final = "/api/v1/namespaces/default/pods"


async def test_a_token_has_the_claims_of_the_api(guarded: Guarded) -> None:
    path = await make_account(guarded)
    token = await make_token(guarded, path, audiences=["x"], expirationSeconds=700)
    claims = msgspec.json.decode(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    own = claims["kubernetes.io"]
    assert (own["namespace"], own["serviceaccount"]["name"]) == (guarded.namespace, "robot")
    assert (claims["aud"], claims["exp"] - claims["iat"], claims["iss"]) == (["x"], 700, AUDIENCE)
    assert claims["sub"] == f"system:serviceaccount:{guarded.namespace}:robot"
    assert claims.keys() == {"aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"}


async def test_a_token_expires_with_its_secret(guarded: Guarded) -> None:
    path = await make_account(guarded)
    assert (await guarded.request("POST", guarded.path("secrets"), {"metadata": {"name": "s"}})).code == 201
    token = await make_token(guarded, path, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s"})
    assert (await who_am_i(bearing(guarded, token))).code == 201
    await guarded.delete(guarded.path("secrets", "s"))
    lost = await guarded.eventually(lambda: who_am_i(bearing(guarded, token)), lambda answer: answer.code == 401)
    assert lost.reason == "Unauthorized"


async def test_a_token_expires_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster(clock=wall_now)
    await cluster.create(ACCOUNT)
    client = cluster.client()
    short, long = await request_token(client, expirationSeconds=600), await request_token(client)
    await trio.sleep(590)
    assert await who_is(client, short) == "system:serviceaccount:default:robot"
    await trio.sleep(80)  # a minute longer than its time
    assert await who_is(client, short) == "Unauthorized"
    assert await who_is(client, long) == "system:serviceaccount:default:robot"


async def test_a_token_is_revoked_with_its_service_account(cluster: Cluster) -> None:
    client = cluster.client()
    await cluster.create(ACCOUNT)
    token = await request_token(client)
    await cluster.delete("sa", "robot")
    assert await who_is(client, token) == "Unauthorized"
    await cluster.create(ACCOUNT)
    assert await who_is(client, token) == "Unauthorized"  # the new one is another account


async def test_a_token_is_revoked_with_its_bound_object(cluster: Cluster) -> None:
    client = cluster.client()
    await cluster.create(ACCOUNT)
    container = {"name": "a", "image": "b"}
    spec = {"serviceAccountName": "robot", "nodeName": "one", "containers": [container]}
    await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = await request_token(client, boundObjectRef=reference)
    review = await client.post(REVIEWS, json={}, headers={"Authorization": f"Bearer {token}"})
    extra = review.json()["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/node-name"] == ["one"]
    await client.request("DELETE", f"{PODS}/p", json={"gracePeriodSeconds": 0})
    assert await who_is(client, token) == "Unauthorized"


async def test_a_forged_token_is_unauthorized(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    token = await request_token(cluster.client())
    head, claims, signature = token.split(".")
    client = cluster.client()
    other = await request_token(client)
    for forged in (
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{other.split('.')[1]}.{signature}",
        f"{head}.{claims}.{signature[:-1]}",
        f"{head}.{claims}.{signature}\u00fc",
    ):
        response = await client.get(PODS, headers={b"Authorization": f"Bearer {forged}".encode()})
        assert response.status_code == 401


async def test_a_token_of_another_cluster_is_unauthorized(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    token = await request_token(cluster.client())
    assert await who_is(Cluster().client(), token) == "Unauthorized"
