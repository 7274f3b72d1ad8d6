"""Validation of ``clientConfig`` and of the conversion of custom resources, with the API server's messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from .metadata import SUBDOMAIN, SUBDOMAIN_TEXT
from .status_causes import StatusCause, invalid_value, required

_FORM = "; desired format: https://host[/path]"


def check_client_config(config: Any, path: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the ``clientConfig`` at the path."""
    config = config or {}
    url, service = config.get("url"), config.get("service")
    if (url is None) is (service is None):
        yield StatusCause(path, "Required value: exactly one of url or service is required", "FieldValueRequired")
    elif url is not None:
        yield from _check_url(str(url), f"{path}.url")
    else:
        yield from _check_service(service, f"{path}.service")


def _check_url(url: str, path: str) -> Iterable[StatusCause]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        yield invalid_value(path, "", f"host must be specified{_FORM}")
    if user:
        yield invalid_value(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid_value(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid_value(path, parts.query, "query parameters are not permitted in the URL")


def _check_service(service: Mapping[str, Any], path: str) -> Iterable[StatusCause]:
    for field, shown in (("namespace", "name"), ("name", "namespace")):  # the real server mixes them up
        if not service.get(field):
            yield StatusCause(f"{path}.{shown}", "Required value", "FieldValueRequired")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid_value(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    where = service.get("path")
    if where in {None, "", "/"}:
        return
    if where == "//":
        yield invalid_value(f"{path}.path", where, "segment[0] may not be empty")
        return
    if not where.startswith("/"):
        yield invalid_value(f"{path}.path", where, "must start with a '/'")
    for at, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid_value(f"{path}.path", where, f"segment[{at}] may not be empty")
        elif not SUBDOMAIN.fullmatch(step):
            yield invalid_value(f"{path}.path", where, f"segment[{at}]: {SUBDOMAIN_TEXT}")


def check_review_versions(versions: Sequence[str], path: str, *, required: str = "") -> Iterable[StatusCause]:
    """Yield the validation errors of the review versions that a webhook accepts."""
    if not versions:
        yield StatusCause(path, f"Required value{required}", "FieldValueRequired")
        return
    seen = set[str]()
    for at, version in enumerate(versions):
        if version in seen:
            yield invalid_value(f"{path}[{at}]", version, "duplicate version")
        seen.add(version)
    if not {"v1", "v1beta1"}.intersection(versions):
        yield invalid_value(path, list(versions), "must include at least one of v1, v1beta1")


def check_conversion(conversion: Mapping[str, Any], path: str) -> Iterable[StatusCause]:
    """Yield the validation errors of the ``spec.conversion`` of a definition."""
    strategy = conversion.get("strategy")
    webhook = conversion.get("webhook") or {}
    config, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or ()
    if not strategy:
        yield StatusCause(f"{path}.strategy", "Required value", "FieldValueRequired")
    elif strategy not in {"None", "Webhook"}:
        text = f'Unsupported value: "{strategy}": supported values: "None", "Webhook"'
        yield StatusCause(f"{path}.strategy", text, "FieldValueNotSupported")
    if strategy == "Webhook":
        if config is None:
            text = "Required value: required when strategy is set to Webhook"
            yield StatusCause(f"{path}.webhookClientConfig", text, "FieldValueRequired")
        else:
            yield from check_client_config(config, f"{path}.webhookClientConfig")
        yield from check_review_versions(versions, f"{path}.conversionReviewVersions")
        return
    text = "Forbidden: should not be set when strategy is not set to Webhook"
    if config is not None:
        yield StatusCause(f"{path}.webhookClientConfig", text, "FieldValueForbidden")
    if versions:
        yield StatusCause(f"{path}.conversionReviewVersions", text, "FieldValueForbidden")
