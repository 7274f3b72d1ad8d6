"""Credentials as they are used: prepared once, and sent only where nobody else can read them."""

from __future__ import annotations

import base64
import datetime
import pathlib
from typing import Any

import pytest
from trio.testing import MockClock

from tests.kube.conftest import Memory, ok
from trioperator._concurrency.clock import wall_now
from trioperator._kube import httpx_adapter
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credentials import Credentials, is_expired, prepare_credentials
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings

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
    monkeypatch.setattr(httpx_adapter, "open_proxy_transport", lambda info, url: opened.append(url))
    info = ConnectionInfo(server="https://10.0.0.1", trust_env=True)
    prepare_credentials(info, None, transport=None, settings=OperatorSettings())
    assert opened == [used]
