"""Tests for :mod:`trioperator.apiserver.builtin.validity.networking`: Services and Ingresses are valid."""

from __future__ import annotations

from typing import Final

from tests.apiserver.conftest import Target

PORT: Final = {"name": "p", "port": 80}


async def test_a_headless_service_has_no_node_port(target: Target) -> None:
    spec = {"clusterIP": "None", "type": "NodePort", "ports": [PORT]}
    answer = await target.request("POST", target.path("services"), {"metadata": {"name": "a"}, "spec": spec})
    expected = "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"
    assert (answer.code, answer.message) == (422, f'Service "a" is invalid: {expected}')
