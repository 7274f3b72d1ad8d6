"""Admission reviews as an API server sends them: over TLS, on connections that are kept, several at a time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import http.client
import json
import pathlib
import ssl
import statistics
import time
from collections.abc import Sequence

import trustme

from tests.bench.objects import GROUP, KIND, PLURAL, VERSION, build_object


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reviews:
    """Reviews that were answered: when the first one was sent, and how long each took, in monotonic nanoseconds."""

    began: int
    delays: Sequence[int]

    @property
    def figures(self) -> dict[str, float]:
        """The usual figures of delays, in milliseconds."""
        cuts = statistics.quantiles([delay / 1e6 for delay in self.delays], n=100, method="inclusive")
        return {"p50 ms": cuts[49], "p99 ms": cuts[98]}


def write_certificate(folder: pathlib.Path) -> dict[str, str]:
    """Write a certificate for 127.0.0.1 with its CA; return the files by what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
    (folder / "key.pem").write_bytes(made.private_key_pem.bytes())
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return {name: str(folder / f"{name}.pem") for name in ("cert", "key", "ca")}


def run_reviews(port: int, authority: str, count: int, *, connections: int, wait: float = 0.0) -> Reviews:
    """Send so many reviews over some connections; each sends the next one when it has the response.

    For *wait* seconds, it is tried again if there is no server yet. Raises OSError, or RuntimeError if one is denied.
    """
    context = ssl.create_default_context(cafile=authority)
    began = time.monotonic_ns()
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        runs = [
            pool.submit(_send, port, context, range(first, count, connections), began / 1e9 + wait)
            for first in range(connections)
        ]
        delays = [delay for run in runs for delay in run.result()]
    return Reviews(began=began, delays=delays)


def _send(port: int, context: ssl.SSLContext, numbers: range, deadline: float) -> list[int]:
    delays = []
    connection = _connect(port, context, deadline)
    for number in numbers:
        body = _make_review(f"review-{number:05}")
        before = time.monotonic_ns()
        connection.request("POST", "/validate?timeout=10s", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        delays.append(time.monotonic_ns() - before)
        if response.status != 200 or not answer["response"]["allowed"]:
            raise RuntimeError(f"HTTP {response.status}: {answer}")
    connection.close()
    return delays


def _connect(port: int, context: ssl.SSLContext, deadline: float) -> http.client.HTTPSConnection:
    while True:
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
        try:
            connection.connect()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return connection


def _make_review(name: str) -> bytes:
    resource = {"group": GROUP, "version": VERSION}
    request = {
        "uid": name,
        "kind": {**resource, "kind": KIND},
        "resource": {**resource, "resource": PLURAL},
        "requestKind": {**resource, "kind": KIND},
        "requestResource": {**resource, "resource": PLURAL},
        "name": name,
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": build_object(name),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()
