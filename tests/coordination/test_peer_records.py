"""Tests for :mod:`trioperator._coordination.peer_records`."""

from __future__ import annotations

import datetime
import math

import msgspec
import pytest

from trioperator._coordination.peer_records import OwnRecord, Records
from trioperator._coordination.peers import Peer
from trioperator._kube.objects import RawObject, parse_object

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(seconds=10)


def make_object(version: str, uid: str = "u1") -> RawObject:
    metadata = {"name": "default", "uid": uid, "resourceVersion": version}
    return parse_object(msgspec.json.encode({"metadata": metadata}))


def make_peer(identity: str, lastseen: datetime.datetime = NOW) -> Peer:
    return Peer(identity, priority=1, lifetime=60.0, lastseen=lastseen)


def take(records: Records, obj: RawObject, *peers: Peer, own: OwnRecord | None = None) -> list[str]:
    records.take(obj, peers, own or OwnRecord(), now=NOW, steady=NOW)
    return [peer.identity for peer in records.peers]


def test_peers_that_may_be_alive_are_kept_when_versions_go_back() -> None:
    records = Records("me")
    assert take(records, make_object("8"), make_peer("me"), make_peer("other")) == ["me", "other"]
    assert take(records, make_object("5"), make_peer("me")) == ["me", "other"]
    assert take(records, make_object("6"), make_peer("me"), make_peer("other")) == ["me", "other"]


def test_peers_that_may_be_alive_are_kept_when_the_own_record_goes_back() -> None:
    records, own = Records("me"), OwnRecord()
    own.store(LATER, expires_at=50.0)
    assert take(records, make_object("8"), make_peer("me", LATER), make_peer("other"), own=own) == ["me", "other"]
    assert take(records, make_object("9"), make_peer("me", NOW), own=own) == ["me", "other"]


@pytest.mark.parametrize("obj", [make_object("9"), make_object("5", uid="u2"), make_object("x")])
def test_peers_that_are_no_longer_listed_are_gone_unless_etcd_was_restored(obj: RawObject) -> None:
    records = Records("me")
    take(records, make_object("8"), make_peer("other"))
    assert take(records, obj) == []


@pytest.mark.parametrize(("version", "is_newer"), [("7", True), ("8", False), ("9", False), ("x", False), ("", False)])
def test_versions_are_compared_as_numbers_if_they_are_numbers(version: str, is_newer: bool) -> None:
    records = Records("me")
    take(records, make_object("8"))
    assert records.is_newer_than(make_object(version)) == is_newer


def test_nothing_is_known_of_an_object_that_is_gone() -> None:
    records = Records("me")
    take(records, make_object("8"), make_peer("me"), make_peer("other"))
    assert (records.uid, records.own) == ("u1", make_peer("me"))
    records.forget()
    assert (records.uid, records.own, records.peers) == (None, None, [])


def test_a_record_may_exist_unless_its_write_has_failed() -> None:
    own = OwnRecord()
    assert not own.may_exist
    own.begin()
    assert own.may_exist  # the write may be cancelled now
    own.end(may_be_stored=False)
    assert not own.may_exist
    own.begin()
    own.end(may_be_stored=True)
    assert own.may_exist
    own.forget()
    assert not own.may_exist
    assert own.expires_at == math.inf


@pytest.mark.parametrize("read", [None, make_peer("me", NOW)])
def test_a_record_that_is_taken_back_is_noticed_now_and_then(read: Peer | None) -> None:
    own = OwnRecord()
    assert not own.is_taken_back(read, now=0.0)  # it was never written
    own.store(LATER, expires_at=50.0)
    assert not own.is_taken_back(make_peer("me", LATER), now=1.0)
    assert [own.is_taken_back(read, now=now) for now in (1.0, 2.0, 5.9, 6.0)] == [True, False, False, True]
