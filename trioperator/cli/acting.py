"""Helpers of commands that act on a cluster with a client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import typer

from trioperator._logs import configure

if TYPE_CHECKING:
    from trioperator.client import Client

#: Action of a command with a client; returns whether all is done.
Act: TypeAlias = "Callable[[Client], Awaitable[bool]]"


def to_printable(text: str) -> str:
    """Return a text with its control characters, which could control the terminal, replaced by question marks."""
    return "".join(char if char.isprintable() else "?" for char in text)


def escape_json(text: str) -> str:
    """Return the same JSON with escapes for control characters that JSON allows in strings, such as U+009B."""
    return "".join(char if char.isprintable() or char in "\n\r\t" else json.dumps(char)[1:-1] for char in text)


def echo(text: str, *, err: bool = False) -> None:
    """Print lines that may quote objects, webhooks or servers, without control characters."""
    typer.echo("\n".join(map(to_printable, text.splitlines())), err=err)


def run_with_client(prepare: Callable[[], Act]) -> None:
    """Run what *prepare* returns with a client of the cluster.

    Failures are logged. The command exits with their code, or with 1 if not all is done.
    """
    import trio

    from trioperator.cli.failures import FAILURE, reporting_failures

    configure(quiet=True)
    with reporting_failures():
        is_done = trio.run(_call_with_client, prepare())
    if not is_done:
        raise typer.Exit(FAILURE)


async def _call_with_client(act: Act) -> bool:
    from trioperator.client import open_client

    async with open_client() as client:
        return await act(client)
