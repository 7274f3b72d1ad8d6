"""Tests for :mod:`trioperator.apiserver.builtin.validity.configuration`: data, claims and leases are valid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.builtin.validity.configuration import (
    check_claim,
    check_config_map,
    check_lease,
    check_secret,
    check_storage_class,
)


async def test_data_is_limited_to_one_mebibyte(target: Target) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    answer = await target.create("configmaps", "a", data={"a": "x" * 1_048_577})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: []: {text}')
    data: dict[str, Any] = {"data": {"a": "x" * 1_048_574}, "binaryData": {"b": "YWI="}}
    assert (await target.create("configmaps", "b", **data)).code == 201
    secret = {"metadata": {"name": "a"}, "data": {"a": "YWFh" * 349_526}}
    answer = await target.request("POST", target.path("secrets"), secret)
    assert (answer.code, answer.message) == (422, f'Secret "a" is invalid: data: {text}')


def test_a_key_of_a_config_map_is_in_one_of_its_parts() -> None:
    assert list(check_config_map({"data": {"a": "1"}, "binaryData": {"b": "YQ=="}})) == []
    (cause,) = check_config_map({"data": {"a": "1"}, "binaryData": {"a": "YQ=="}})
    assert (cause.field, cause.message) == (
        "data[a]",
        'Invalid value: "a": duplicate of key present in binaryData',
    )


@pytest.mark.parametrize(("key", "is_valid"), [("a.b", True), ("A_b-1", True), ("a/b", False), ("a b", False)])
def test_keys_of_data_are_file_names(key: str, is_valid: bool) -> None:
    expected = [] if is_valid else [f"data[{key}]"]
    assert [cause.field for cause in check_config_map({"data": {key: ""}})] == expected
    secret = {"type": "Opaque", "metadata": {}, "data": {key: ""}}
    assert [cause.field for cause in check_secret(secret)] == expected


@pytest.mark.parametrize(
    ("title", "keys", "fields"),
    [
        ("Opaque", [], []),
        ("kubernetes.io/tls", ["tls.crt"], ["data[tls.key]"]),
        ("kubernetes.io/tls", ["tls.crt", "tls.key"], []),
        ("kubernetes.io/dockerconfigjson", [], ["data[.dockerconfigjson]"]),
        ("kubernetes.io/ssh-auth", [], ["data[ssh-privatekey]"]),
        ("kubernetes.io/basic-auth", [], ["data[username]", "data[password]"]),
        ("kubernetes.io/basic-auth", ["password"], []),
        (
            "kubernetes.io/service-account-token",
            [],
            ["metadata.annotations[kubernetes.io/service-account.name]"],
        ),
    ],
)
def test_a_secret_has_the_keys_of_its_type(title: str, keys: list[str], fields: list[str]) -> None:
    secret = {"type": title, "metadata": {}, "data": dict.fromkeys(keys, "YQ==")}
    assert [cause.field for cause in check_secret(secret)] == fields


@pytest.mark.parametrize(
    ("modes", "storage", "fields"),
    [
        (["ReadWriteOnce"], "1Gi", []),
        ([], "1Gi", ["spec.accessModes"]),
        (["Sometimes"], "1Gi", ["spec.accessModes"]),
        (["ReadOnlyMany"], "0", ["spec.resources[storage]"]),
        (["ReadOnlyMany"], None, ["spec.resources[storage]"]),
    ],
)
def test_a_claim_asks_for_storage(modes: list[str], storage: str | None, fields: list[str]) -> None:
    requests = {} if storage is None else {"storage": storage}
    causes = check_claim({"spec": {"accessModes": modes, "resources": {"requests": requests}}})
    assert [cause.field for cause in causes] == fields


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, None),
        ({"leaseDurationSeconds": 1, "leaseTransitions": 0}, None),
        ({"leaseDurationSeconds": 0}, "leaseDurationSeconds"),
        ({"leaseTransitions": -1}, "leaseTransitions"),
    ],
)
def test_the_duration_of_a_lease_is_positive(spec: dict[str, Any], field: str | None) -> None:
    assert [cause.field for cause in check_lease({"spec": spec})] == ([f"spec.{field}"] if field else [])


def test_a_storage_class_has_a_provisioner() -> None:
    assert [cause.field for cause in check_storage_class({})] == ["provisioner"]
    assert list(check_storage_class({"provisioner": "a.b/c"})) == []
