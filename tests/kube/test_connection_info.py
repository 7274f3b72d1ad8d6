"""Connection data: contradicting fields, secrets, and the server's URL."""

from __future__ import annotations

import base64
import traceback
from pathlib import Path

import pytest

from trioperator._kube.connection_info import ConnectionInfo, ServerUrl, parse_server_url
from trioperator._kube.tls_config import decode_pem
from trioperator.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("what", ["ca", "certificate", "private_key"])
def test_a_path_and_data_for_the_same_thing_are_rejected(what: str) -> None:
    with pytest.raises(ConfigError, match=rf"Both {what}_path and {what}_data"):
        ConnectionInfo(server="https://x", **{f"{what}_path": "/x", f"{what}_data": PEM})  # type: ignore[arg-type]


def test_paths_may_be_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text("t0ken")
    info = ConnectionInfo(server="https://x", token_file=Path("~/token"), ca_path="~/ca.crt", certificate_path="/a~b")
    assert info.authorization() == "Bearer t0ken"
    assert info.paths == (f"{tmp_path}/token", f"{tmp_path}/ca.crt", "/a~b")


def test_a_key_without_a_certificate_is_rejected_and_vice_versa() -> None:
    with pytest.raises(ConfigError, match=r"without its certificate"):
        ConnectionInfo(server="https://x", private_key_data=PEM)
    with pytest.raises(ConfigError, match=r"without its private key"):
        ConnectionInfo(server="https://x", certificate_data=PEM)


def test_secrets_are_not_shown() -> None:
    info = ConnectionInfo(
        server="https://x",
        token="s3cret",
        password="s3cret",
        username="me",
        private_key_data="s3cret",
        certificate_data="s3cret",
        proxy_url="http://user:s3cret@proxy",
    )
    assert "s3cret" not in repr(info)
    assert "s3cret" not in f"{info}"
    assert "server='https://x'" in repr(info)
    assert "username='me'" in repr(info)


@pytest.mark.parametrize(
    "url", ["https://me:s3cret@host", "https://me:s3cret/@host", "https://me:s3cret@[host", "me:s3cret@host"]
)
def test_a_password_in_the_address_of_a_server_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="…@") as caught:
        parse_server_url(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in repr(ConnectionInfo(server=url))


def test_fields_that_are_not_set_are_not_shown() -> None:
    assert repr(ConnectionInfo(server="https://x")) == "ConnectionInfo(server='https://x')"


def test_a_token_is_a_bearer_token_by_default() -> None:
    assert ConnectionInfo(server="s", token="abc").authorization() == "Bearer abc"
    assert ConnectionInfo(server="s", token="abc", scheme="Custom").authorization() == "Custom abc"


def test_a_user_and_a_password_are_basic_authorization() -> None:
    value = ConnectionInfo(server="s", username="ünser", password="p:w").authorization()
    assert value is not None
    scheme, _, pair = value.partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair).decode() == "ünser:p:w"


def test_without_credentials_there_is_no_authorization() -> None:
    assert ConnectionInfo(server="s").authorization() is None
    assert ConnectionInfo(server="s", scheme="Negotiate").authorization() == "Negotiate"


def test_a_token_file_wins_over_a_token_and_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    info = ConnectionInfo(server="s", token="old", token_file=path)
    assert info.authorization() == "Bearer one"
    path.write_text("two")
    assert info.authorization() == "Bearer two"
    path.unlink()
    assert info.authorization() == "Bearer old"


def test_an_unreadable_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.*No such file"):
        ConnectionInfo(server="s", token_file=tmp_path / "gone").authorization()


def test_a_token_cannot_inject_headers() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionInfo(server="s", token="s3cret\r\nX-Evil: 1").authorization()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [PEM, PEM.encode(), base64.b64encode(PEM.encode()), base64.encodebytes(PEM.encode() * 9).decode()]
)
def test_data_is_pem_or_base64_as_a_string_or_bytes(data: str | bytes) -> None:
    assert decode_pem(data, "x").startswith(PEM)


@pytest.mark.parametrize("data", ["", "???", "YWJj", b"\xff\xfe", base64.b64encode(b"\xff\xff").decode()])
def test_data_that_is_not_pem_is_rejected(data: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"neither PEM"):
        decode_pem(data, "x")


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://host", ServerUrl(scheme="https", host="host", port=443, base="")),
        ("http://host/", ServerUrl(scheme="http", host="host", port=80, base="")),
        ("https://HOST:6443/k8s/c-1/", ServerUrl(scheme="https", host="host", port=6443, base="/k8s/c-1")),
        ("https://[fd00::1]:6443", ServerUrl(scheme="https", host="fd00::1", port=6443, base="")),
        ("https://bücher.example", ServerUrl(scheme="https", host="xn--bcher-kva.example", port=443, base="")),
    ],
)
def test_a_server_url_is_parsed(url: str, server: ServerUrl) -> None:
    assert parse_server_url(url) == server


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:6443",
        "ftp://host",
        "https://",
        "https://host:port",
        "https://host:99999",
        "https://[::1",
        "http://h?x",
    ],
)
def test_an_invalid_server_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        parse_server_url(url)


def test_a_password_in_a_server_url_is_rejected_and_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_server_url("https://me:s3cret@host")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.8.9.10:1", "[::1]:6443"])
def test_this_machine_is_a_loopback_address(host: str) -> None:
    assert parse_server_url(f"http://{host}").is_loopback


@pytest.mark.parametrize(
    "host", ["localhost.example", "10.0.0.1", "0.0.0.0", "[fd00::1]", "[::ffff:10.0.0.1]", "127.x"]
)
def test_another_machine_is_not_a_loopback_address(host: str) -> None:
    assert not parse_server_url(f"http://{host}").is_loopback
