"""Certificates, keys and SSL contexts."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.tls_config import TlsConfig, build_ssl_context, read_tls_config
from trioperator.errors import ConfigError


def test_certificates_are_verified_but_not_by_the_strictest_rules(ca_pem: str) -> None:
    context = build_ssl_context(TlsConfig(ca=ca_pem))
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_only_the_clusters_ca_is_trusted_if_it_is_set(ca_pem: str) -> None:
    assert len(build_ssl_context(TlsConfig(ca=ca_pem)).get_ca_certs()) == 1


@pytest.mark.parametrize("anchor", ["root", "intermediate", "certificate"])
async def test_an_intermediate_ca_or_the_servers_certificate_may_be_the_clusters_ca(anchor: str) -> None:
    root = trustme.CA()
    intermediate = root.create_child_ca()
    certificate = intermediate.issue_cert("cluster.test")
    anchors = {
        "root": root.cert_pem,
        "intermediate": intermediate.cert_pem,
        "certificate": certificate.cert_chain_pems[0],
    }
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(ours)
    theirs = build_ssl_context(TlsConfig(ca=anchors[anchor].bytes().decode()))
    near, far = trio.testing.memory_stream_pair()
    client = trio.SSLStream(near, theirs, server_hostname="cluster.test")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.SSLStream(far, ours, server_side=True).do_handshake)
        await client.do_handshake()


def test_an_insecure_connection_needs_no_ca(tmp_path: Path) -> None:
    config = read_tls_config(ConnectionInfo(server="https://x", insecure=True, ca_path=tmp_path / "gone"))
    context = build_ssl_context(config)
    assert context.verify_mode == ssl.CERT_NONE
    assert not context.check_hostname


def no_files_in_memory(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Behave as a system without files in memory, or without /proc."""
    if how == "missing":
        monkeypatch.delattr("os.memfd_create", raising=False)
    elif how == "forbidden":

        def refuse(name: str) -> int:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr("os.memfd_create", refuse, raising=False)
    elif how == "no /proc":
        monkeypatch.setattr("os.path.exists", lambda path: not str(path).startswith("/proc"))


@pytest.mark.parametrize("memory", ["present", "missing", "forbidden", "no /proc"])
def test_a_certificate_comes_from_files_or_data_and_leaves_nothing_behind(
    memory: str, ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_files_in_memory(monkeypatch, memory)
    mine = ca.issue_cert("me@example.org")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    mine.cert_chain_pems[0].write_to_path(certificate)
    mine.private_key_pem.write_to_path(key)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    by_path = read_tls_config(ConnectionInfo(server="https://x", certificate_path=certificate, private_key_path=key))
    by_data = read_tls_config(
        ConnectionInfo(server="https://x", certificate_data=certificate.read_bytes(), private_key_data=key.read_text())
    )
    assert by_path == by_data
    handles = count_handles()
    build_ssl_context(by_path)
    assert list(scratch.iterdir()) == []
    assert count_handles() == handles


def count_handles() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def tls_of(ca: trustme.CA) -> TlsConfig:
    mine = ca.issue_cert("me@example.org")
    certificate, key = mine.cert_chain_pems[0].bytes().decode(), mine.private_key_pem.bytes().decode()
    return TlsConfig(certificate=certificate, private_key=key)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_a_client_certificate_needs_no_writable_directory(
    ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    build_ssl_context(tls_of(ca))


@pytest.mark.parametrize("memory", ["missing", "forbidden", "no /proc"])
def test_where_no_file_can_be_written_the_error_says_so(
    memory: str, ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_files_in_memory(monkeypatch, memory)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"takes a temporary file: No such file .* set TMPDIR"):
        build_ssl_context(tls_of(ca))


def test_one_file_can_contain_the_certificate_and_its_key(ca: trustme.CA, tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    ca.issue_cert("me@example.org").private_key_and_cert_chain_pem.write_to_path(path)
    build_ssl_context(read_tls_config(ConnectionInfo(server="https://x", certificate_path=path)))


def test_invalid_certificates_are_reported(ca: trustme.CA, ca_pem: str, tmp_path: Path) -> None:
    one, other = ca.issue_cert("me@example.org"), ca.issue_cert("you@example.org")
    certificate = one.cert_chain_pems[0].bytes().decode()
    with pytest.raises(ConfigError, match="do not match: KEY_VALUES_MISMATCH"):
        build_ssl_context(TlsConfig(certificate=certificate, private_key=other.private_key_pem.bytes().decode()))
    with pytest.raises(ConfigError, match="client certificate or its key is invalid"):
        build_ssl_context(TlsConfig(certificate=certificate, private_key="-----BEGIN PRIVATE KEY-----\nxx\n"))
    with pytest.raises(ConfigError, match="certificate authority is not a valid PEM certificate"):
        build_ssl_context(TlsConfig(ca="-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"))
    path = tmp_path / "ca.pem"
    with pytest.raises(ConfigError, match=r"Cannot read the certificate authority .*ca\.pem: No such file"):
        read_tls_config(ConnectionInfo(server="https://x", ca_path=path))
    path.write_text("nothing")
    with pytest.raises(ConfigError, match=r"The certificate authority .*ca\.pem is not valid PEM"):
        read_tls_config(ConnectionInfo(server="https://x", ca_path=path))


def test_an_encrypted_key_is_rejected_without_a_password_prompt(ca: trustme.CA) -> None:
    from cryptography.hazmat.primitives import serialization

    mine = ca.issue_cert("me@example.org")
    key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"s3cret"),
    )
    with pytest.raises(ConfigError, match="encrypted keys are not supported"):
        build_ssl_context(
            TlsConfig(certificate=mine.cert_chain_pems[0].bytes().decode(), private_key=encrypted.decode())
        )


def test_a_tls_config_shows_no_secrets() -> None:
    assert "s3cret" not in repr(TlsConfig(private_key="s3cret"))
