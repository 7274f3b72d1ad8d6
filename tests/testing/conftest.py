"""The servers of the client's tests, for transports under test."""

from __future__ import annotations

from tests.kube.conftest import ca, ca_pem, serve, server_tls

__all__ = ["ca", "ca_pem", "serve", "server_tls"]
