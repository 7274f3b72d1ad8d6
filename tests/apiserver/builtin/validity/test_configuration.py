"""Tests for :mod:`trioperator.apiserver.builtin.validity.configuration`: data, claims and leases are valid."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Target


async def test_data_is_limited_to_one_mebibyte(target: Target) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    answer = await target.create("configmaps", "a", data={"a": "x" * 1_048_577})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: []: {text}')
    data: dict[str, Any] = {"data": {"a": "x" * 1_048_574}, "binaryData": {"b": "YWI="}}
    assert (await target.create("configmaps", "b", **data)).code == 201
    secret = {"metadata": {"name": "a"}, "data": {"a": "YWFh" * 349_526}}
    answer = await target.request("POST", target.path("secrets"), secret)
    assert (answer.code, answer.message) == (422, f'Secret "a" is invalid: data: {text}')
