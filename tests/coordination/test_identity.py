"""Tests for :mod:`trioperator._coordination.identity`: names of operators are unique, those of people are not."""

from __future__ import annotations

import getpass
import re
import socket

import pytest

from trioperator._coordination.identity import make_identity


@pytest.fixture(autouse=True)
def no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_ID", raising=False)


def test_each_process_has_its_own_name() -> None:
    assert re.fullmatch(r"[^@]+@[^/]+/\d{14}/[0-9a-f]{6}", make_identity())
    assert make_identity() != make_identity()


def test_the_name_of_a_pod_is_taken_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_ID", "operator-7d9f-x2x")
    assert make_identity() == "operator-7d9f-x2x"


def test_commands_of_one_person_have_the_same_name() -> None:
    assert make_identity(manual=True) == make_identity(manual=True)
    assert make_identity(manual=True).endswith(f"@{socket.gethostname()}")


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert re.match(r"\d+@", make_identity())
