"""Tests for :mod:`trioperator.apiserver.model.client_config_validation`: invalid webhooks get the server's messages."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model.client_config_validation import (
    check_client_config,
    check_conversion,
    check_review_versions,
)
from trioperator.apiserver.model.metadata import SUBDOMAIN_TEXT
from trioperator.apiserver.model.status_causes import StatusCause, required

FORM = "; desired format: https://host[/path]"
FORBIDDEN = "Forbidden: should not be set when strategy is not set to Webhook"


def service(**more: Any) -> dict[str, Any]:
    """Return the clientConfig of a Service."""
    return {"service": {"namespace": "ns", "name": "hooks", **more}}


@pytest.mark.parametrize(
    "config",
    [
        {"url": "https://a"},
        {"url": "https://a:8443/x/y"},
        service(),
        service(path="", port=1),
        service(path="/"),
        service(path="/a/b-c.d/", port=65535),
    ],
)
def test_webhooks_at_urls_and_services_are_valid(config: dict[str, Any]) -> None:
    assert list(check_client_config(config, "c")) == []


@pytest.mark.parametrize("url", ["https://[", "https://[::1", "https://]"])
def test_what_is_not_a_url_is_a_validation_error(url: str) -> None:
    (cause,) = check_client_config({"url": url}, "c")
    assert cause.field == "c.url"
    assert "url must be a valid URL: " in cause.message


@pytest.mark.parametrize("config", [None, {}, {"url": "https://a", **service()}])
def test_a_webhook_is_at_a_url_or_a_service(config: dict[str, Any] | None) -> None:
    assert list(check_client_config(config, "c")) == [required("c", "exactly one of url or service is required")]


@pytest.mark.parametrize(
    ("url", "problems"),
    [
        ("http://a", [f"\"http\": 'https' is the only allowed URL scheme{FORM}"]),
        ("https:///x", [f'"": host must be specified{FORM}']),
        ("https://u:p@a", ['"u:p": user information is not permitted in the URL']),
        ("https://a#b", ['"b": fragments are not permitted in the URL']),
        ("https://a?b=c", ['"b=c": query parameters are not permitted in the URL']),
        ("a", [f"\"\": 'https' is the only allowed URL scheme{FORM}", f'"": host must be specified{FORM}']),
    ],
)
def test_urls_have_the_scheme_https_a_host_and_a_path(url: str, problems: list[str]) -> None:
    found = list(check_client_config({"url": url}, "c"))
    assert found == [StatusCause("c.url", f"Invalid value: {problem}") for problem in problems]


@pytest.mark.parametrize(
    ("more", "field", "problem"),
    [
        ({"port": 0}, "port", "0: port is not valid: must be between 1 and 65535, inclusive"),
        ({"port": 65536}, "port", "65536: port is not valid: must be between 1 and 65535, inclusive"),
        ({"path": "a"}, "path", "\"a\": must start with a '/'"),
        ({"path": "//"}, "path", '"//": segment[0] may not be empty'),
        ({"path": "/a//b"}, "path", '"/a//b": segment[1] may not be empty'),
        ({"path": "/a/B"}, "path", f'"/a/B": segment[1]: {SUBDOMAIN_TEXT}'),
    ],
)
def test_ports_and_paths_of_services_are_validated(more: dict[str, Any], field: str, problem: str) -> None:
    cause = StatusCause(f"c.service.{field}", f"Invalid value: {problem}")
    assert cause in list(check_client_config(service(**more), "c"))


def test_the_names_of_a_service_are_mixed_up_as_by_the_real_server() -> None:
    assert list(check_client_config(service(namespace=""), "c")) == [required("c.service.name")]
    assert list(check_client_config(service(name=None), "c")) == [required("c.service.namespace")]


@pytest.mark.parametrize(
    ("versions", "causes"),
    [
        (["v1"], []),
        (["v2", "v1beta1"], []),
        ([], [required("v", "so it is")]),
        (["v1", "v1"], [StatusCause("v[1]", 'Invalid value: "v1": duplicate version')]),
        (["v2"], [StatusCause("v", 'Invalid value: ["v2"]: must include at least one of v1, v1beta1')]),
    ],
)
def test_a_webhook_accepts_a_known_review_version(versions: list[str], causes: list[StatusCause]) -> None:
    assert list(check_review_versions(versions, "v", required=": so it is")) == causes


@pytest.mark.parametrize(
    ("conversion", "causes"),
    [
        ({"strategy": "None"}, []),
        (
            {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]},
            },
            [],
        ),
        ({}, [required("c.strategy")]),
        (
            {"strategy": "Hook"},
            [
                StatusCause(
                    "c.strategy",
                    'Unsupported value: "Hook": supported values: "None", "Webhook"',
                    "FieldValueNotSupported",
                )
            ],
        ),
        (
            {"strategy": "Webhook"},
            [
                required("c.webhookClientConfig", "required when strategy is set to Webhook"),
                required("c.conversionReviewVersions"),
            ],
        ),
        (
            {"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}},
            [
                StatusCause("c.webhookClientConfig", FORBIDDEN, "FieldValueForbidden"),
                StatusCause("c.conversionReviewVersions", FORBIDDEN, "FieldValueForbidden"),
            ],
        ),
    ],
)
def test_only_the_strategy_webhook_has_a_webhook(conversion: dict[str, Any], causes: list[StatusCause]) -> None:
    assert list(check_conversion(conversion, "c")) == causes
