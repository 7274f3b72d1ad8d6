"""Credentials as they are used: prepared once, and sent only where nobody else can read them."""

from __future__ import annotations

import base64
import datetime
import os
import pathlib
import ssl
import traceback
from pathlib import Path
from typing import Any, cast

import pytest
from trio.testing import MockClock

from tests.kube.conftest import Memory, ok
from trioperator._concurrency.clock import wall_now
from trioperator._kube import httpx_adapter
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credentials import Credentials, find_login, is_expired, prepare_credentials
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the file, which does not exist yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    return tmp_path / ".netrc"


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def test_the_login_is_that_of_the_host(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\nmachine b.example login you password other\n")
    assert find_login("a.example") == ("me", "s3cret")
    assert find_login("b.example") == ("you", "other")
    assert find_login("c.example") is None


def test_a_default_is_for_all_other_hosts(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\ndefault login anybody password any\n")
    assert find_login("a.example") == ("me", "s3cret")
    assert find_login("c.example") == ("anybody", "any")


def test_without_a_file_there_is_no_login(file: Path) -> None:
    assert not file.exists()
    assert find_login("a.example") is None


def test_the_environment_may_name_another_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "machine a.example login me password s3cret")
    write(file.with_name("logins"), "machine a.example login other password 5ecret")
    monkeypatch.setenv("NETRC", "~/logins")
    assert find_login("a.example") == ("other", "5ecret")


def test_an_invalid_file_is_named_without_its_secrets(file: Path) -> None:
    write(file, "machine a.example login me password s3cret\nmachin s3cret")
    with pytest.raises(ConfigError, match=r"The file .*\.netrc is invalid in line 2\.") as raised:
        find_login("a.example")
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_an_unreadable_file_is_named(file: Path) -> None:
    file.mkdir()
    with pytest.raises(ConfigError, match=r"Cannot read the file .*\.netrc: "):
        find_login("a.example")


pytestmark = pytest.mark.usefixtures("no_environment")


CREDENTIALS = [
    {"token": "s3cret"},
    {"username": "me", "password": "s3cret"},
    {"scheme": "Negotiate", "token": "s3cret"},
    {"scheme": "s3cret"},
]


@pytest.mark.parametrize("fields", CREDENTIALS)
@pytest.mark.parametrize("server", ["http://10.0.0.1", "http://cluster:8080", "http://[fd00::1]"])
async def test_credentials_are_not_sent_without_encryption(
    settings: OperatorSettings, server: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"would be sent without encryption: use https://") as caught:
        async with open_client(lambda: ConnectionInfo(server=server, **fields), settings=settings):
            raise AssertionError
    assert server in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("by", ["connection", "environment"])
async def test_credentials_are_not_sent_through_a_proxy_without_encryption(
    settings: OperatorSettings, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    proxy = "http://127.0.0.1:3128"
    info = ConnectionInfo(server="http://127.0.0.1:1", token="t", proxy_url=proxy if by == "connection" else None)
    if by == "environment":
        monkeypatch.setenv("HTTP_PROXY", proxy)
        settings.networking.trust_env = True
    with pytest.raises(ConfigError, match=r"would be sent without encryption"):
        async with open_client(lambda: info, settings=settings):
            raise AssertionError


async def test_plain_http_without_credentials_is_allowed(settings: OperatorSettings) -> None:
    async with open_client(lambda: ConnectionInfo(server="http://10.0.0.1"), settings=settings):
        pass


def prepare(**fields: Any) -> Credentials:
    info = ConnectionInfo(server="http://cluster", **fields)
    credentials = prepare_credentials(info, None, transport=Memory([ok()]), settings=OperatorSettings())
    credentials.start_ageing()
    return credentials


@pytest.mark.parametrize(("lifetime", "renewed"), [(3600, 3540), (100, 80), (20, 16), (11, 10), (5, 10)])
async def test_credentials_are_due_for_renewal_ahead_of_their_expiration(
    autojump_clock: MockClock, lifetime: float, renewed: float
) -> None:
    credentials = prepare(expiration=wall_now() + datetime.timedelta(seconds=lifetime))
    assert credentials.renew_at == pytest.approx(renewed, abs=0.01)
    assert credentials.reload_at == credentials.expires_at == pytest.approx(lifetime, abs=0.01)


async def test_credentials_without_an_expiration_are_never_due(autojump_clock: MockClock) -> None:
    credentials = prepare(token="t")
    assert {credentials.renew_at, credentials.expires_at, credentials.reload_at} == {float("inf")}


@pytest.mark.parametrize("naive", [False, True])
async def test_expirations_without_a_time_zone_are_in_utc(autojump_clock: MockClock, naive: bool) -> None:
    for seconds, expired in ((-1, True), (1, False)):
        expiration = wall_now() + datetime.timedelta(seconds=seconds)
        info = ConnectionInfo(server="http://x", expiration=expiration.replace(tzinfo=None) if naive else expiration)
        assert is_expired(info) is expired


@pytest.fixture
def logins(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a ``~/.netrc`` for an API server and a proxy."""
    path = tmp_path / "netrc"
    path.write_text("machine cluster login me password s3cret\nmachine proxy login p@xy password 5ecret\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))


def authorization_of(info: ConnectionInfo, *, trust_env: bool = False) -> bytes | None:
    settings = OperatorSettings()
    settings.networking.trust_env = trust_env
    credentials = prepare_credentials(info, None, transport=Memory([ok()]), settings=settings)
    assert credentials.info is info
    return dict(credentials.headers).get(b"Authorization")


@pytest.mark.usefixtures("logins")
def test_the_login_of_the_netrc_file_is_used_where_the_environment_is_trusted() -> None:
    expected = b"Basic " + base64.b64encode(b"me:s3cret")
    assert authorization_of(ConnectionInfo(server="https://cluster", trust_env=True)) == expected
    assert authorization_of(ConnectionInfo(server="https://cluster"), trust_env=True) == expected
    assert authorization_of(ConnectionInfo(server="https://cluster")) is None
    assert authorization_of(ConnectionInfo(server="https://other", trust_env=True)) is None


@pytest.mark.usefixtures("logins")
@pytest.mark.parametrize("fields", CREDENTIALS)
def test_credentials_of_a_connection_precede_the_netrc_file(fields: dict[str, Any]) -> None:
    plain = authorization_of(ConnectionInfo(server="https://cluster", **fields))
    assert plain is not None
    assert authorization_of(ConnectionInfo(server="https://cluster", trust_env=True, **fields)) == plain


@pytest.mark.usefixtures("logins")
@pytest.mark.parametrize(
    ("proxy", "used"),
    [
        ("http://proxy:3128/x", "http://p%40xy:5ecret@proxy:3128/x"),
        ("http://a:b@proxy:3128", "http://a:b@proxy:3128"),
        ("http://other:3128", "http://other:3128"),
        ("http://[proxy", "http://[proxy"),
    ],
)
def test_a_proxy_of_the_environment_has_the_login_of_the_netrc_file(
    monkeypatch: pytest.MonkeyPatch, proxy: str, used: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    opened: list[str] = []
    monkeypatch.setattr(httpx_adapter, "open_proxy_transport", lambda info, url, context: opened.append(url))
    info = ConnectionInfo(server="https://10.0.0.1", trust_env=True)
    prepare_credentials(info, None, transport=None, settings=OperatorSettings())
    assert opened == [used]


class Gateway(ConnectionInfo):
    """The connection of docs/login.md."""

    def as_ssl_context(self) -> ssl.SSLContext:
        context = super().as_ssl_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def as_http_headers(self) -> dict[str, str]:
        return {**super().as_http_headers(), "X-Gateway-Key": os.environ["GATEWAY_KEY"]}


def headers_of(info: ConnectionInfo) -> dict[bytes, bytes]:
    found = prepare_credentials(info, None, transport=Memory([ok()]), settings=OperatorSettings())
    return {name: value for name, value in found.headers if name != b"User-Agent"}


def test_a_subclass_may_send_headers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    info = Gateway(server="https://cluster", token="t")
    assert headers_of(info) == {b"Authorization": b"Bearer t", b"X-Gateway-Key": b"s3cret"}
    assert info.as_ssl_context().minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.usefixtures("logins")
def test_a_subclass_has_the_login_of_the_netrc_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    assert headers_of(Gateway(server="https://cluster", trust_env=True)).keys() == {b"Authorization", b"X-Gateway-Key"}


def test_headers_of_a_subclass_are_not_sent_without_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    with pytest.raises(ConfigError, match=r"would be sent without encryption") as caught:
        prepare_credentials(Gateway(server="http://10.0.0.1"), None, transport=None, settings=OperatorSettings())
    assert "s3cret" not in str(caught.value)


def test_a_method_of_a_subclass_that_fails_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^Gateway\.as_http_headers\(\) has failed: KeyError\('GATEWAY_KEY'\)$"):
        headers_of(Gateway(server="https://cluster"))


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Key": "a\r\nX-Other: b"},
        {"X Key": "a"},
        {"": "a"},
        {"X-Key": "é"},
        {"X-Key": None},
        {b"X-Key": "a"},
        None,
        [],
    ],
)
def test_invalid_headers_of_a_subclass_are_refused_without_their_values(headers: Any) -> None:
    class Invalid(ConnectionInfo):
        def as_http_headers(self) -> dict[str, str]:
            return cast(dict[str, str], headers)

    with pytest.raises(
        ConfigError, match=r"^The header .* of a connection is invalid: it|^Invalid\.as_http_headers\(\)"
    ):
        headers_of(Invalid(server="https://cluster"))


def test_another_class_of_connection_has_a_transport_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "s3cret")
    settings = OperatorSettings()
    plain = prepare_credentials(ConnectionInfo(server="https://cluster"), None, transport=None, settings=settings)
    first = prepare_credentials(Gateway(server="https://cluster"), plain, transport=None, settings=settings)
    again = prepare_credentials(Gateway(server="https://cluster"), first, transport=None, settings=settings)
    assert first.transport is not plain.transport
    assert again.transport is first.transport
