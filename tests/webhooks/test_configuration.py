"""Tests for :mod:`trioperator._webhooks.configuration`: what is to be stored, and what others have changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.webhooks.hooks import ADDRESS, hook
from trioperator._kube.objects import parse_page
from trioperator._webhooks.configuration import Configuration, decode_stored
from trioperator.errors import ConnectionLostError


def response(*hooks: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "hooks", "resourceVersion": "7"}, "webhooks": list(hooks)})


def watch(known: Configuration, *hooks: dict[str, Any]) -> None:
    """Let the watch of the configuration see these webhooks."""
    items = [msgspec.json.decode(response(*hooks))]
    page = parse_page(msgspec.json.encode({"kind": "List", "metadata": {}, "items": items}))
    known.stored.replace([known.stored.observe(None, obj) for obj in page.items])


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b'{"webhooks": 1}', b'{"metadata": {"annotations": []}}'])
def test_a_response_that_is_no_configuration_counts_as_lost(data: bytes) -> None:
    with pytest.raises(ConnectionLostError, match="not a webhook configuration"):
        decode_stored(data)


async def test_what_was_not_written_yet_or_is_not_watched_is_not_compared() -> None:
    known = Configuration(lambda: None)
    known.written = [hook("own")]
    assert known.find_change(ADDRESS) is None
    watch(known, hook("own"))
    assert known.find_change(ADDRESS) is None
    watch(known)
    change = known.find_change(ADDRESS)
    assert change is not None
    assert (change[0], change[1].webhooks) == ([hook("own")], [])
    known.written = None
    assert known.find_change(ADDRESS) is None


async def test_the_server_s_own_form_is_as_it_is_wanted_and_told_once() -> None:
    known, wanted, amended = (
        Configuration(lambda: None),
        [hook("own")],
        [{**hook("own"), "namespaceSelector": {"a": 1}}],
    )
    known.written = wanted
    assert known.note_written(wanted, decode_stored(response(*amended)))
    assert not known.note_written(wanted, decode_stored(response(*amended)))
    assert not known.note_written(wanted, decode_stored(response(*wanted)))
    watch(known, *amended)
    assert known.find_change(ADDRESS) is None
    assert known.is_own(decode_stored(response(*amended)), ADDRESS)
    watch(known, *wanted)
    assert known.find_change(ADDRESS) is None
    watch(known, {**hook("own"), "namespaceSelector": {"b": 1}})
    assert known.find_change(ADDRESS) is not None


async def test_a_configuration_that_a_newer_version_serves_is_not_one_s_own() -> None:
    known = Configuration(lambda: None)
    known.written = [hook("own")]
    known.join(known.written, decode_stored(response(hook("older"))), ADDRESS)
    stored = decode_stored(response(hook("older"), hook("own")))
    assert known.is_own(stored, ADDRESS)
    newer = decode_stored(response(hook("older"), hook("own"), hook("newer")))
    assert not known.is_own(newer, ADDRESS)
    assert known.find_expiry() < float("inf")
