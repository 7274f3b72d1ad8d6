"""Tests for :mod:`trioperator.cli.etcd`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import httpx
import pytest

from tests.controlplane import free_ports
from trioperator.cli import etcd


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], [("localhost", 2379)]),
        (["--listen-client-urls=http://127.0.0.1:5", "--data-dir=d"], [("127.0.0.1", 5)]),
        (["-data-dir", "d", "--listen-client-urls", "http://0.0.0.0:6/"], [("0.0.0.0", 6)]),
        (["--listen-client-urls=http://[::1]:7,http://localhost:8"], [("::1", 7), ("localhost", 8)]),
    ],
)
def test_the_urls_for_clients_are_found_among_the_flags(args: list[str], expected: list[tuple[str, int]]) -> None:
    assert etcd.find_addresses(args) == expected


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/readyz?x=1", 200), ("/v3/kv/range", 404)])
def test_it_answers_health_checks_only(path: str, status: int) -> None:
    assert etcd.answer(f"GET {path} HTTP/1.1\r\n\r\n".encode()).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("request_", [b"", b"\x16\x03\x01", b"GET"])
def test_garbage_gets_a_404(request_: bytes) -> None:
    assert etcd.answer(request_).startswith(b"HTTP/1.1 404 ")


def test_the_script_is_healthy_until_sigterm() -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-IS", etcd.__file__, f"--listen-client-urls={url}"]
    with subprocess.Popen(command) as process:
        try:
            transport = httpx.HTTPTransport(retries=8)  # with backoff, until it listens
            with httpx.Client(transport=transport) as client:
                assert json.loads(client.get(f"{url}/health").text) == {"health": "true", "reason": ""}
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_a_port_in_use_is_reported() -> None:
    with etcd._listen("127.0.0.1", 0) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SystemExit, match="cannot listen on the URLs of --listen-client-urls"):
            etcd.main([f"--listen-client-urls={url}"])
