"""Tests for :mod:`trioperator.apiserver.custom.formats`: strings are checked against the formats of schemas."""

from __future__ import annotations

import base64
import datetime
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.formats import FORMATS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("byte", "YWJj"),
        ("cidr", "10.0.0.0/8"),
        ("cidr", "10.0.0.1/8"),
        ("cidr", "fe80::/10"),
        ("date", "2024-02-29"),
        ("date-time", "2024-02-29T12:00:00Z"),
        ("date-time", "2024-02-29t12:00:00.123+01:00"),
        ("datetime", "2024-02-29T12:00:00z"),
        ("duration", "1h30m"),
        ("duration", "-1.5s"),
        ("duration", "0"),
        ("duration", "2 days"),
        ("email", "a@b"),
        ("email", "A B <a@b.c>"),
        ("hostname", "a.b-c.De"),
        ("hostname", "a" * 63),
        ("ipv4", "1.2.3.4"),
        ("ipv4", "01.2.3.4"),
        ("k8s-long-name", "a.b-c"),
        ("k8s-short-name", "a-b"),
        ("mac", "00:11:22:33:44:55"),
        ("mac", "0011.2233.4455"),
        ("uri", "/a b"),
        ("uri", "mailto:a@b"),
        ("uuid", "123E4567e89b12d3a456426614174000"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000"),
        ("ipv6", "::1"),
        ("uri", "https://a/b"),
        ("uuid", "12345678-1234-1234-1234-123456789012"),
    ],
)
def test_strings_of_a_format_are_accepted(name: str, text: str) -> None:
    assert FORMATS[name](text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("byte", ""),
        ("byte", "YWJ"),
        ("ipv6", "fe80::1%eth0"),
        ("k8s-long-name", "a_b"),
        ("k8s-short-name", "a.b"),
        ("mac", "00:11:22:33:44"),
        ("uri", "a"),
        ("uuid", "{123e4567-e89b-12d3-a456-426614174000}"),
        ("uuid4", "123e4567-e89b-12d3-a456-426614174000"),
        ("byte", "a b="),
        ("cidr", "10.0.0.0"),
        ("cidr", "10.0.0.0/33"),
        ("date", "2023-02-29"),
        ("date", "20240229"),
        ("date-time", "2024-02-29"),
        ("date-time", "2024-02-29T12:00:00"),
        ("date-time", "2024-02-30T12:00:00Z"),
        ("datetime", "2024-02-29T25:00:00Z"),
        ("duration", ""),
        ("duration", "1"),
        ("duration", "h"),
        ("email", "a"),
        ("email", "a@b@c"),
        ("hostname", "-a"),
        ("hostname", "a..b"),
        ("hostname", "a" * 64),
        ("hostname", ".".join(["a" * 60] * 5)),
        ("ipv4", "1.2.3"),
        ("ipv4", "::1"),
        ("ipv6", "1.2.3.4"),
        ("uri", ""),
        ("uuid", "1"),
    ],
)
def test_other_strings_are_rejected(name: str, text: str) -> None:
    assert not FORMATS[name](text)


@given(st.sampled_from(sorted(FORMATS)), st.text())
def test_any_string_is_either_accepted_or_rejected(name: str, text: str) -> None:
    assert FORMATS[name](text) in {True, False}


@given(st.binary(), st.datetimes(timezones=st.just(datetime.UTC)), st.uuids(), st.ip_addresses())
def test_what_python_formats_is_accepted(
    content: bytes, moment: datetime.datetime, uid: object, address: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> None:
    assert FORMATS["byte"](base64.b64encode(content or b"x").decode())
    assert FORMATS["date-time"](moment.isoformat())
    assert FORMATS["date"](moment.date().isoformat())
    assert FORMATS["uuid"](str(uid))
    assert FORMATS[f"ipv{address.version}"](str(address))
    assert FORMATS["cidr"](f"{address}/16")
