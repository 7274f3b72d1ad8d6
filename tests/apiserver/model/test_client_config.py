"""Tests for :mod:`trioperator.apiserver.model.client_config`: webhooks are reached by a URL or through a Service."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model.client_config import ClientConfig, Conversion


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"url": "https://a/x"}, ClientConfig(url="https://a/x")),
        ({"url": "https://a", "caBundle": "Q0E="}, ClientConfig(url="https://a", ca_bundle="Q0E=")),
        ({"url": None, "caBundle": None}, ClientConfig()),
        ({}, ClientConfig()),
    ],
)
def test_a_webhook_may_have_a_url(config: dict[str, Any], expected: ClientConfig) -> None:
    assert ClientConfig.of(config) == expected


def test_a_service_is_reached_at_its_port_and_path() -> None:
    service = {"namespace": "ns", "name": "hooks", "path": "/x", "port": 8443}
    assert ClientConfig.of({"service": service, "caBundle": "Q0E="}) == ClientConfig(
        service="ns/hooks", path="/x", port=8443, ca_bundle="Q0E="
    )


@pytest.mark.parametrize("more", [{}, {"path": None, "port": None}])
def test_a_service_is_reached_at_port_443_by_default(more: dict[str, Any]) -> None:
    found = ClientConfig.of({"service": {"namespace": "ns", "name": "hooks", **more}})
    assert found == ClientConfig(service="ns/hooks", path="", port=443)


@pytest.mark.parametrize("spec", [{}, {"strategy": "None"}, {"strategy": "None", "webhook": None}])
def test_definitions_may_have_no_conversion_webhook(spec: dict[str, Any]) -> None:
    assert Conversion.of(spec) is None


@pytest.mark.parametrize(("versions", "expected"), [(["v1", "v1beta1"], ("v1", "v1beta1")), (None, ())])
def test_a_conversion_webhook_accepts_review_versions_in_order(
    versions: list[str] | None, expected: tuple[str, ...]
) -> None:
    webhook = {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": versions}
    assert Conversion.of({"strategy": "Webhook", "webhook": webhook}) == Conversion(
        client=ClientConfig(url="https://a"), versions=expected
    )
