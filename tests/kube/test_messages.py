"""Tests for :mod:`trioperator._kube.messages`: what responses contain."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import trio
import trio.testing

from tests.kube.conftest import Serve, Talk, client_of
from trioperator._http.transport import BodyTooLargeError
from trioperator.errors import (
    ConnectionLostError,
)
from trioperator.settings import OperatorSettings


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gzip.compress(b'{"items":[],"metadata":{"resourceVersion":"7"}}', mtime=0), "7"),
        (
            gzip.compress(b'{"items":[],"metadata":{"resourceVersion":"' + b"7" * 5000 + b'"}}', mtime=0),
            BodyTooLargeError,
        ),
        (b"this is not compressed", ConnectionLostError),
    ],
)
async def test_responses_are_compressed_where_that_is_asked_for(
    serve: Serve, settings: OperatorSettings, content: bytes, expected: Any
) -> None:
    asked: list[str] = []

    async def script(talk: Talk) -> None:
        while (request := await talk.request()) is not None:
            asked.append(request.headers["accept-encoding"])
            head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(content)}\r\n\r\n"
            await talk.send(head.encode() + content)

    async with client_of(await serve(script), settings) as connected:
        client = connected.retrying(())
        with trio.fail_after(60):
            if isinstance(expected, str):
                page = await client.compressed().list_page("/pods")
                assert page.resource_version == expected
            else:
                with pytest.raises(expected):
                    await client.compressed().limiting(1000).list_page("/pods")
    assert set(asked) == {"gzip"}
