"""Tests for :mod:`trioperator._webhooks.certificates`."""

from __future__ import annotations

import datetime
import os
import pathlib
import ssl

import pytest
import trio.testing

import trioperator
from trioperator._webhooks.certificates import join_authorities, make_context, read_files
from trioperator._webhooks.issuing import build_authority
from trioperator.errors import ConfigError


def build_certificate(password: str | None = None) -> tuple[bytes, bytes]:
    return trioperator.WebhookServer.build_certificate(["localhost"], password)


def test_authorities_are_joined_without_repetitions() -> None:
    now = datetime.datetime.now(datetime.UTC)
    first, second, third = (build_authority(now).certificate for _ in range(3))
    both = join_authorities(first, second)
    assert (both.count(b"BEGIN CERTIFICATE"), first.strip() in both, second.strip() in both) == (2, True, True)
    assert join_authorities(first, first) == first
    assert join_authorities(first, both) == join_authorities(both, both) == both
    assert join_authorities(both, first).count(b"BEGIN CERTIFICATE") == 2
    assert join_authorities(both, second + third).count(b"BEGIN CERTIFICATE") == 3
    context = ssl.create_default_context(cadata=join_authorities(b"text\n" + both, third).decode())
    assert len(context.get_ca_certs()) == 3


@pytest.mark.parametrize("password", [None, "secret"])
def test_the_certificate_and_its_key_can_be_loaded(password: str | None) -> None:
    chain, key = build_certificate(password)
    assert (b"ENCRYPTED" in key) is (password is not None)
    context = make_context(chain, key, password)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2, "whatever the system allows"
    assert context.options & ssl.OP_NO_RENEGOTIATION, "which OpenSSL allows before 3.0"


@pytest.mark.parametrize("password", [None, "wrong"])
def test_an_encrypted_key_needs_its_password(password: str | None) -> None:
    chain, key = build_certificate("secret")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_context(chain, key, password)


def test_a_key_of_another_certificate_is_rejected() -> None:
    one, other = build_certificate(), build_certificate()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_context(one[0], other[1])


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_no_writable_directory_is_needed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The containers of the manifests have none: their root file system is read-only, and no volume is mounted."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    chain, key = build_certificate()
    assert isinstance(make_context(chain, key), ssl.SSLContext)


def test_where_no_file_can_be_written_the_error_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    chain, key = build_certificate()
    with pytest.raises(ConfigError, match=r"takes a temporary file: No such file .* set TMPDIR"):
        make_context(chain, key)


async def test_files_are_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert await read_files([str(tmp_path / "a"), None]) == (b"x", None)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        await read_files([str(tmp_path / "b")])


async def test_no_virtual_time_passes_while_files_are_read(
    tmp_path: pathlib.Path, autojump_clock: trio.testing.MockClock
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with trio.move_on_after(1) as scope:
        for _ in range(50):
            await read_files([str(tmp_path / "a")])
    assert not scope.cancelled_caught
