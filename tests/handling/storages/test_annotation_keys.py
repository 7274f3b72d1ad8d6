"""Keys of the annotations that store an operator's state."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.strategies import untimed
from trioperator._handling.storages.annotation_keys import annotation_keys, check_prefix, is_replicated

KOPF = "kopf.zalando.org"
# What Kubernetes takes for the part after the slash.
VALID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("fn", ["fn"]),
        ("a/b", ["a.b"]),
        ("Cls.<locals>.fn/spec.x", ["Cls._locals_.fn.spec.x"]),
        ("last-handled-configuration", ["last-handled-configuration"]),
        ("z" * 46, ["z" * 46]),
        ("z" * 47, ["z" * 47, "z" * 39 + "-P7g6cw"]),
        ("very/" * 9 + "ab", ["very." * 9 + "ab", "very." * 7 + "very-Q1IeRA"]),
        ("x" * 63, ["x" * 63, "x" * 39 + "-GINbRg"]),
        ("x" * 64, ["x" * 56 + "-SItAqA", "x" * 39 + "-SItAqA"]),
        ("some/" + "y" * 80, ["some." + "y" * 51 + "-lUtybg", "some." + "y" * 34 + "-AozbhA"]),
    ],
)
def test_valid_keys_are_the_same_as_kopfs(name: str, names: list[str]) -> None:
    keys = annotation_keys(KOPF, name, v1=True)
    assert keys == tuple(f"{KOPF}/{expected}" for expected in names)
    assert annotation_keys(KOPF, name, v1=False) == keys[:1]


@pytest.mark.parametrize(
    "name", ["lambda:/tmp/x.py:5", "<lambda>", "_private", "handler_", "é", "", "/", "a b", "-", "_" * 99, "f" * 150]
)
@pytest.mark.parametrize("prefix", ["op.dev", "x" * 80 + ".example.com"])
def test_keys_that_the_server_would_reject_are_replaced(name: str, prefix: str) -> None:
    for key in annotation_keys(prefix, name, v1=True):
        assert key.startswith(f"{prefix}/")
        assert VALID.fullmatch(key.removeprefix(f"{prefix}/"))
        assert len(key.removeprefix(f"{prefix}/")) <= 63


def test_a_replaced_key_still_shows_the_name() -> None:
    (key,) = annotation_keys("op.dev", "lambda:/tmp/x.py:5", v1=False)
    assert key.startswith("op.dev/lambda_.tmp.x.py_5-")


def test_replaced_names_stay_distinct() -> None:
    names = ["a:b", "a;b", "a_b", "a b", "_a", "x_a", "a_", "a-"]
    assert len({annotation_keys("op.dev", name, v1=False) for name in names}) == len(names)


@given(
    st.text(st.sampled_from("ab/<>.:_-é"), max_size=150),
    st.sampled_from(["op.dev", KOPF, "y" * 70 + ".com"]),
    st.booleans(),
)
@untimed
def test_every_key_is_valid(name: str, prefix: str, replicated: bool) -> None:
    keys = annotation_keys(prefix, name, v1=True, replicated=replicated)
    assert len(set(keys)) == len(keys)
    for key in keys:
        rest = key.removeprefix(f"{prefix}/")
        assert len(rest) <= 63
        assert VALID.fullmatch(rest)


def test_annotations_copied_from_deployments_are_not_mistaken_for_those_of_the_replica_set() -> None:
    assert annotation_keys(KOPF, "fn", v1=True, replicated=True) == (f"{KOPF}/fn-ofDRS",)


@pytest.mark.parametrize(
    ("body", "replicated"),
    [
        ({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "Deployment"}]}}, True),
        ({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "X"}, {"kind": "Deployment"}]}}, True),
        ({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "Rollout"}]}}, False),
        ({"kind": "ReplicaSet", "metadata": {"ownerReferences": None}}, False),
        ({"kind": "ReplicaSet", "metadata": None}, False),
        ({"kind": "Pod", "metadata": {"ownerReferences": [{"kind": "Deployment"}]}}, False),
        ({}, False),
    ],
)
def test_replica_sets_of_deployments_are_recognized(body: dict[str, Any], replicated: bool) -> None:
    assert is_replicated(body) is replicated


def test_a_prefix_is_needed_and_must_not_be_too_long() -> None:
    assert check_prefix("op.dev") == "op.dev"
    for prefix in ("", "x" * 254):
        with pytest.raises(ValueError, match="prefix"):
            check_prefix(prefix)
