"""Tests for :mod:`trioperator._tooling.deployment.options`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator._tooling.deployment.options import DeploymentOptions, make_arguments, make_object
from trioperator.cli.root import app as command
from trioperator.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["--all-namespaces", "--standalone"]),
        ({"patterns": ("a", "b-*")}, ["--namespace=a", "--namespace=b-*", "--standalone"]),
        ({"peering": "mine"}, ["--all-namespaces", "--peering=mine"]),
        ({"leader_elect": True}, ["--all-namespaces", "--standalone", "--leader-elect", "--lease=trioperator"]),
        ({"shards": 4, "name": "it"}, ["--all-namespaces", "--standalone", "--shards=4", "--lease=it"]),
    ],
)
def test_the_container_has_the_options_of_the_operator(options: dict[str, Any], expected: list[str]) -> None:
    arguments = make_arguments(DeploymentOptions(**options))
    assert arguments == [*expected, "--log-format=json", "--health=http://0.0.0.0:8081"]


def test_files_and_modules_come_last_and_metrics_if_there_are_any() -> None:
    options = DeploymentOptions(files=("./src/app.py", "/home/me/more.py", "../x.py"), modules=("a.b",), prometheus="p")
    assert make_arguments(options)[-5:] == [
        "--metrics=http://0.0.0.0:8080/metrics",
        "--module=a.b",
        "src/app.py",
        "more.py",
        "x.py",
    ]


def test_run_has_all_options_of_the_container() -> None:
    import typer.main

    run = typer.main.get_command(command).commands["run"]  # type: ignore[attr-defined]  # the root is a group
    known = {name for parameter in run.params for name in parameter.opts}
    options = DeploymentOptions(leader_elect=True, peering="x", patterns=("a",), prometheus="p", modules=("m",))
    shards = DeploymentOptions(shards=2)
    given = [*make_arguments(options), *make_arguments(shards)]
    assert {argument.partition("=")[0] for argument in given} <= known


def test_objects_have_the_labels_of_the_pods() -> None:
    options = DeploymentOptions(name="it", namespace="place")
    assert make_object(options, "v1", "Service", suffix="-x", spec={}) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "it-x", "namespace": "place", "labels": {"app.kubernetes.io/name": "it"}},
        "spec": {},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Operator"}, "The name 'Operator' is invalid"),
        ({"name": "x" * 53}, "at most 52"),
        ({"name": "a.b"}, "The name 'a.b' is invalid"),
        ({"namespace": "a_b"}, "The namespace 'a_b' is invalid"),
        ({"image": ""}, "The image '' is invalid"),
        ({"image": "operator:1 "}, "The image 'operator:1 ' is invalid"),
        ({"replicas": 2}, "pass --leader-elect or --shards"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeploymentOptions(**options)
    assert DeploymentOptions(name="x" * 52, replicas=2, shards=2).has_lease
