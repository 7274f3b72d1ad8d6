"""The live view of an operator in a process of its own: streams, readers who do not read, and the end by a signal."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import time

import httpx

from tests.processes.conftest import Api, Start

OPERATOR = """
import trioperator as kopf

@kopf.on.create('kopfexamples', id='create')
async def create(name, **_): ...
"""
TOKEN = "s3cret-token"


def open_stream(port: int, path: str) -> socket.socket:
    """Ask for a stream; the reader reads as little as it can, if it reads at all."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=60)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    headers = f"Host: localhost:{port}\r\nAuthorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n"
    stream.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
    return stream


def read_until(stream: socket.socket, text: bytes) -> bytes:
    received = b""
    while text not in received:
        chunk = stream.recv(65536)
        assert chunk, received[-500:]
        received += chunk
    return received


def memory(pid: int) -> int:
    """Return the KiB of memory that a process has."""
    found = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_streams_are_live_and_end_with_the_process_whoever_reads_them(start: Start, api: Api) -> None:
    options = ("--live-view=http://127.0.0.1:0", f"--live-view-token={TOKEN}")
    program = start(OPERATOR, *options)
    [port] = map(int, re.findall(r"Serving the live view at http://127\.0\.0\.1:(\d+)/debug", program.output))
    with open_stream(port, "/debug/objects") as stream:
        read_until(stream, b"No objects")
        lazy = [open_stream(port, "/debug/tasks") for _ in range(10)]
        before = memory(program.process.pid)
        for number in range(30):
            api.create(f"live-{number}")
        read_until(stream, b"30 objects")
        time.sleep(3)  # in which the others could be sent more
        assert memory(program.process.pid) - before < 20_000
        page = httpx.get(
            f"http://127.0.0.1:{port}/debug/errors", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False
        )
        assert page.status_code == 200
        began = time.monotonic()
        program.process.send_signal(signal.SIGTERM)
        while stream.recv(65536):
            pass
        assert program.process.wait(60) == 0
        assert time.monotonic() - began < 10
    for each in lazy:
        each.close()
    assert TOKEN not in program.output
    assert "Traceback" not in program.output
