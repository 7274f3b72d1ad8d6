"""Tests for :mod:`trioperator._webhooks.server_variants`; recognized clusters are in those of the admission service."""

from __future__ import annotations

import pathlib

import pytest

import trioperator
from tests.webhooks.serving import serving
from trioperator.errors import ConfigError


@pytest.mark.parametrize("variant", ["WebhookK3dServer", "WebhookMinikubeServer", "WebhookDockerDesktopServer"])
async def test_variants_differ_in_their_hosts(variant: str) -> None:
    host = {"K3d": "host.k3d.internal", "Min": "host.minikube.internal", "Doc": "host.docker.internal"}[variant[7:10]]
    async with serving(getattr(trioperator, variant)()) as state:
        assert state.url.startswith(f"https://{host}:")
    assert getattr(trioperator, variant)(host="mine.test").url_host == "mine.test"


def test_the_automatic_server_is_as_the_deployment_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOPERATOR_WEBHOOKS_HOST", "it-webhooks.place.svc")
    monkeypatch.setenv("TRIOPERATOR_WEBHOOKS_PORT", "9443")
    monkeypatch.setenv("TRIOPERATOR_WEBHOOKS_CA_SECRET", "place/ca")
    server = trioperator.WebhookAutoServer()
    assert (server.addr, server.port, server.url_host) == ("0.0.0.0", 9443, "it-webhooks.place.svc")
    assert server.ca_secret == "place/ca"
    given = trioperator.WebhookAutoServer(addr="127.0.0.1", port=1234, host="other.test")
    assert (given.addr, given.port, given.url_host) == ("127.0.0.1", 1234, "other.test")


@pytest.mark.parametrize("has_authority", [True, False])
def test_the_automatic_server_takes_the_certificate_of_the_deployment(
    has_authority: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_authority:
        (tmp_path / "ca.crt").touch()
    monkeypatch.setenv("TRIOPERATOR_WEBHOOKS_CERTIFICATES", str(tmp_path))
    server = trioperator.WebhookAutoServer()
    assert (server.certfile, server.pkeyfile) == (str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    assert server.cafile == (str(tmp_path / "ca.crt") if has_authority else None)


def test_a_port_that_is_no_number_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOPERATOR_WEBHOOKS_PORT", "https")
    with pytest.raises(ConfigError, match="TRIOPERATOR_WEBHOOKS_PORT is 'https'"):
        trioperator.WebhookAutoServer()
