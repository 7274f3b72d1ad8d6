"""URLs of requests and in messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.urls import build_target, mask_userinfo


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://example.com:6443/path", "https://example.com:6443/path"),
        ("https://user:secret@example.com/path", "https://…@example.com/path"),
        ("https://token@example.com", "https://…@example.com"),
        ("https://user:sec/ret@example.com", "https://…@example.com"),
        ("https://user:sec@ret@example.com", "https://…@example.com"),
        ("https://user:sec\nret@example.com", "https://…@example.com"),
        ("user:secret@example.com", "…@example.com"),
        ("socks5h://user:secret@[::1", "socks5h://…@[::1"),
        ("", ""),
        ("no url", "no url"),
    ],
)
def test_the_user_and_the_password_are_masked(url: str, masked: str) -> None:
    assert mask_userinfo(url) == masked


@given(scheme=st.sampled_from(["https://", "http://", "", "//"]), rest=st.text())
def test_no_password_is_left_whatever_the_url(scheme: str, rest: str) -> None:
    masked = mask_userinfo(f"{scheme}user:secret@{rest}")
    assert "secret" not in masked.removesuffix(rest.rpartition("@")[2])


@pytest.mark.parametrize(
    ("path", "params", "target"),
    [
        ("/api/v1", None, "/api/v1"),
        ("/api/v1", {"a": None}, "/api/v1"),
        ("/apis/rbac/clusterroles/system:node", {"a": "b c&d"}, "/apis/rbac/clusterroles/system:node?a=b%20c%26d"),
        ("/a b\r\nX: y/ü?x#y", {}, "/a%20b%0D%0AX:%20y/%C3%BC%3Fx%23y"),
        ("/x", {"yes": True, "no": False, "n": 3}, "/x?yes=true&no=false&n=3"),
    ],
)
def test_targets_are_quoted(path: str, params: Any, target: str) -> None:
    assert build_target(path, params) == target
