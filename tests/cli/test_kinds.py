"""Tests for :mod:`trioperator.cli.kinds`."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from tests.runtime.conftest import CRD, PLAIN_CRD
from trioperator.cli.kinds import discover_kinds
from trioperator.cli.manifests import Manifest
from trioperator.errors import ConfigError


async def test_kinds_of_crds_and_built_in_ones_are_known_without_a_cluster() -> None:
    namespace = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ignored"}}
    contents = (CRD, PLAIN_CRD, namespace)
    kinds = {str(kind): kind for kind in await discover_kinds([Manifest(path="x", content=each) for each in contents])}
    assert kinds["widgets.v1.example.com"].subresources == {"status"}
    assert kinds["gadgets.v1.example.com"].subresources == set()
    assert kinds["deployments.v1.apps"].namespaced


async def test_a_crd_that_is_rejected_is_named() -> None:
    content = {**CRD, "spec": {**CRD["spec"], "group": "other.com"}}
    with pytest.raises(
        ConfigError, match=r"rejected CustomResourceDefinition widgets\.example\.com \(document 1 of x\)"
    ):
        await discover_kinds([Manifest(path="x", content=content)])


async def test_kinds_are_looked_up_in_the_cluster_of_the_kubeconfig(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"name": "it", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "it", "context": {"cluster": "it", "user": "me"}}
    users = [{"name": "me", "user": {"token": "x"}}]
    config = {"current-context": "it", "clusters": [cluster], "contexts": [context], "users": users}
    (tmp_path / "config").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        await discover_kinds(None)
