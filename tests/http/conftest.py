"""The scripted servers of the tests of the client."""

from __future__ import annotations

from tests.kube.conftest import ca, ca_pem, serve, server_tls, settings

__all__ = ["ca", "ca_pem", "serve", "server_tls", "settings"]
