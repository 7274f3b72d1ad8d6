"""A small client of the Kubernetes API for what the benchmark itself sends: cheap, blocking, not what is measured.

One :class:`Connection` belongs to one thread. Nothing here is shared with either operator.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import pathlib
import select
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import yaml

USER_AGENT = "trioperator-bench-load"
MERGE_PATCH = "application/merge-patch+json"
_TIMEOUT = 60.0


class ApiFailed(Exception):
    """Raised when the API server rejects a request of the benchmark."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Address of the API server, and credentials for it."""

    url: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


def load_target(kubeconfig: pathlib.Path) -> Target:
    """Read the current context of a kubeconfig: token, basic auth or client certificate."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config, "contexts", config["current-context"])["context"]
    cluster = _named(config, "clusters", context["cluster"])["cluster"]
    user = _named(config, "users", context["user"]).get("user") or {}
    headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
    if token := user.get("token"):
        headers["Authorization"] = f"Bearer {token}"
    elif "username" in user:
        pair = f"{user['username']}:{user['password']}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    url = str(cluster["server"])
    return Target(url=url, headers=headers, tls=_tls(cluster, user) if url.startswith("https:") else None)


def _named(config: Mapping[str, Any], section: str, name: str) -> dict[str, Any]:
    return next(entry for entry in config[section] if entry["name"] == name)


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    context = ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=authority or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as both:  # the ssl module takes them from files only
            pair = [base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")]
            both.write(b"\n".join(pair))
            both.flush()
            context.load_cert_chain(both.name)
    elif "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context


class Connection:
    """One keep-alive connection. Not for several threads."""

    def __init__(self, target: Target) -> None:
        address = urllib.parse.urlsplit(target.url)
        assert address.hostname is not None
        self._headers = dict(target.headers)
        host, port, tls = address.hostname, address.port, target.tls
        self._http: http.client.HTTPConnection
        if tls is None:
            self._http = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        else:
            self._http = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=tls)
        self.answered_at = 0
        """When the latest response began to arrive, by the system's monotonic clock, in nanoseconds."""

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._http.close()

    def request(
        self, method: str, path: str, *, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send one request and return the status and the content. Raises OSError and HTTPException as they come."""
        headers = self._headers if body is None else {**self._headers, "Content-Type": content_type}
        self._http.request(method, path, body=body, headers=headers)
        if self._http.sock is not None:
            select.select([self._http.sock], [], [], _TIMEOUT)
        self.answered_at = time.monotonic_ns()
        response = self._http.getresponse()
        return response.status, response.read()

    def call(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Send and receive JSON. Raises ApiFailed for every status of 400 and above."""
        content = None if body is None else json.dumps(body).encode()
        status, answer = self.request(method, path, body=content, content_type=content_type)
        if status >= 400:
            raise ApiFailed(f"{method} {path}: {status} {answer[:500].decode(errors='replace')}")
        return json.loads(answer)
