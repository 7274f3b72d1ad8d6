"""What a pod without credentials sends to a webhook port. Each flood is bounded in its connections, bytes and time."""

from __future__ import annotations

import contextlib
import functools
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import trio

_MIB: Final = 2**20
_HEAD: Final = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n"
_PATHS: Final = (b"/convert", b"/nosuch", b"/check")
_PAUSE: Final = 0.5  # seconds before a connection that was refused is opened again

Connect = Callable[[], Awaitable[trio.abc.Stream]]


async def _connect(port: int) -> trio.abc.Stream:
    """Connect by TLS, without any check of the server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context, https_compatible=True)
    await stream.do_handshake()
    return stream


async def _wait(stream: trio.abc.Stream) -> None:
    """Send nothing until the server closes the connection."""
    while await stream.receive_some(65_536):
        pass


async def _send_body(stream: trio.abc.Stream, path: bytes) -> None:
    await stream.send_all(_HEAD % (path, b"Content-Length: %d" % (32 * _MIB)))
    for _ in range(32):
        await stream.send_all(b"[]," * (_MIB // 3))
    await _wait(stream)


async def _send_chunks(stream: trio.abc.Stream) -> None:
    await stream.send_all(_HEAD % (b"/check", b"Transfer-Encoding: chunked"))
    for _ in range(64):
        await stream.send_all(b"2\r\n[]\r\n" * 40_000)
    await _wait(stream)


async def _send_trailers(stream: trio.abc.Stream) -> None:
    await stream.send_all(_HEAD % (b"/check", b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n")
    for _ in range(64):
        await stream.send_all(b"X-Trailer: %s\r\n" % (b"x" * 100) * 4_000)
    await _wait(stream)


async def _repeat(connect: Connect, misuse: Callable[[trio.abc.Stream], Awaitable[None]]) -> None:
    """Misuse one connection after the other."""
    while True:
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            stream = None
            try:
                with trio.fail_after(30):
                    stream = await connect()
                await misuse(stream)
            finally:
                if stream is not None:
                    await trio.aclose_forcefully(stream)
        await trio.sleep(_PAUSE)


async def _flood(name: str, port: int, seconds: float) -> None:
    connect: Connect = functools.partial(trio.open_tcp_stream, "127.0.0.1", port)
    if name != "bare":
        connect = functools.partial(_connect, port)
    number, kinds = FLOODS[name]
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for index in range(number):
                nursery.start_soon(_repeat, connect, kinds[index % len(kinds)])
                if index % 20 == 0:
                    await trio.sleep(0.01)


#: The number of connections, and what is done with each of them.
FLOODS: Final[dict[str, tuple[int, tuple[Callable[[trio.abc.Stream], Awaitable[None]], ...]]]] = {
    "idle": (1100, (_wait,)),
    "bare": (6000, (_wait,)),
    "bodies": (12, tuple(functools.partial(_send_body, path=path) for path in _PATHS)),
    "chunks": (8, (_send_chunks,)),
    "trailers": (8, (_send_trailers,)),
}


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    trio.run(_flood, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
