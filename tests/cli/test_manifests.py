"""Tests for :mod:`trioperator.cli.manifests`."""

from __future__ import annotations

import io
import logging
import pathlib
import sys
from typing import Any

import msgspec
import pytest

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator.apiserver import Cluster
from trioperator.cli.manifests import Manifest, apply_manifests, find_declared, load_manifests
from trioperator.errors import ConfigError

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CRD, OBJ = str(EXAMPLES / "crd.yaml"), str(EXAMPLES / "obj.yaml")
POD = "{apiVersion: v1, kind: Pod, metadata: {name: %s}}"

_LINES = [", ".join([f"*a{at - 1}"] * 9) for at in range(1, 12)]
DEEP = b"a: " + b"[" * 100_000
BOMB = "\n".join(["a0: &a0 [x]", *(f"a{at}: &a{at} [{line}]" for at, line in enumerate(_LINES, 1))]).encode()


class Input:
    """Replacement of ``sys.stdin``."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


class TestLoading:
    def test_a_file_may_have_many_objects(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "m.yaml"
        path.write_text(
            f"---\n{POD % 'a'}\n---\n---\n"
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {generateName: b-}}]}\n"
        )
        assert [str(manifest) for manifest in load_manifests([str(path), OBJ])] == [
            f"Pod a (document 1 of {path})",
            f"Pod b- (document 3 of {path})",
            f"KopfExample kopf-example-1 (document 1 of {OBJ})",
        ]

    def test_a_directory_stands_for_its_manifests_in_order_of_their_names(self, tmp_path: pathlib.Path) -> None:
        for name in ("b.yaml", "a.yml", "c.json"):
            (tmp_path / name).write_text(POD % name[0])
        (tmp_path / "readme.md").write_text("# no manifest")
        (tmp_path / "below").mkdir()
        found = [manifest.content["metadata"]["name"] for manifest in load_manifests([str(tmp_path)])]
        assert found == ["a", "b", "c"]

    def test_a_directory_without_manifests_is_an_error(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ConfigError, match=r"^The directory .* contains no manifests \(files ending in \.yaml, "):
            load_manifests([str(tmp_path)])

    def test_manifests_are_read_from_stdin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", Input((POD % "a").encode()))
        assert [str(manifest) for manifest in load_manifests(["-"])] == ["Pod a (document 1 of stdin)"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"a: [", "The manifests in .*m.yaml are not valid YAML: line 1: did not find expected node content"),
            pytest.param(
                b"a: " + b"[" * 100_000,
                "The manifests in .*m.yaml are not valid YAML: (line 1: )?exceeded max",  # by us, or by a newer libyaml
                id="deep",
            ),
            pytest.param(
                BOMB, "The manifests in .*m.yaml are not valid YAML: exceeded max number of 40000 fields and", id="bomb"
            ),
            (b"\x00", "The manifests in .*m.yaml are not valid YAML: "),
            (b"a: 1\nb: {", "The manifests in .*m.yaml are not valid YAML: line 2: did not find expected node content"),
            (b"\xff\xfe\xfa", "Cannot read the manifests in .*m.yaml: they are not UTF-8"),
            (b"text", "Document 1 of .*m.yaml contains str instead of an object"),
            (b"---\n---\n- a", "Document 2 of .*m.yaml contains list instead of an object"),
            (b"kind: Pod\nmetadata: {}", "Document 1 of .*m.yaml contains an object with an invalid apiVersion: None"),
            (
                b"apiVersion: v1\nkind: 5\nmetadata: {}",
                "Document 1 of .*m.yaml contains an object with an invalid kind: 5",
            ),
            (
                b"apiVersion: v1\nkind: Pod\nmetadata: x",
                "Document 1 of .*m.yaml contains an object with an invalid metadata: 'x'",
            ),
            (b"kind: List\nitems: 5", "Document 1 of .*m.yaml is a List with invalid items: 5"),
            (b"kind: List\nitems: [5]", "Document 1 of .*m.yaml contains int instead of an object"),
        ],
    )
    def test_an_invalid_manifest_is_an_error_that_names_the_document(
        self, tmp_path: pathlib.Path, content: bytes, message: str
    ) -> None:
        path = tmp_path / "m.yaml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"^{message}") as caught:
            load_manifests([str(path)])
        assert "\n" not in str(caught.value)

    def test_values_are_what_the_api_server_reads_in_them(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "m.yaml"
        path.write_text(f"{POD[:-1] % 'a'}, spec: {{a: 2024-01-01, b: 1_000, 1: on}}}}")
        [manifest] = load_manifests([str(path)])
        assert manifest.content["spec"] == {"a": "2024-01-01", "b": 1000, "1": True}

    def test_a_file_that_cannot_be_read_is_an_error(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(
            ConfigError, match=r"Cannot read the manifests in .*nothing\.yaml: No such file or directory\."
        ):
            load_manifests([str(tmp_path / "nothing.yaml")])


class TestApplying:
    async def test_crds_and_namespaces_are_applied_first(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        team = Manifest(path="t", content={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await apply_manifests(cluster, [*load_manifests([OBJ, CRD]), team])
        assert caplog.messages == [
            f"Applied CustomResourceDefinition kopfexamples.kopf.dev (document 1 of {CRD}).",
            "Applied Namespace team (document 1 of t).",
            f"Applied KopfExample kopf-example-1 (document 1 of {OBJ}).",
        ]

    async def test_existing_objects_are_updated(self, cluster: Cluster) -> None:
        for value in ("1", "2"):
            content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": value}}
            await apply_manifests(cluster, [Manifest(path="m", content=content)])
        assert (await cluster.get("cm", "a"))["data"] == {"x": "2"}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "x"}}, "apply its CustomResourceDefinition"),
            ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A B"}}, "metadata.name: Invalid value"),
            ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}, '"b" not found'),
        ],
    )
    async def test_an_error_names_the_object_that_was_rejected(
        self, cluster: Cluster, content: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(
            ConfigError, match=r"^The API server rejected \w+ [\w ]+ \(document 3 of m.yaml\): "
        ) as caught:
            await apply_manifests(cluster, [Manifest(path="m.yaml", content=content, document=3)])
        assert message in str(caught.value)


def test_declared_kinds_are_those_that_no_manifest_has() -> None:
    before = get_default_registry()
    set_default_registry(OperatorRegistry())
    try:
        for name in ("Ant", "Bee"):
            crds.kind("example.com/v1")(msgspec.defstruct(name, [("spec", dict[str, str])]))
        found = find_declared([])
        assert [str(each) for each in found] == [
            f"CustomResourceDefinition {name}.example.com (document 1 of the classes)" for name in ("ants", "bees")
        ]
        assert [str(each) for each in find_declared(found[:1])] == [str(found[1])]
    finally:
        set_default_registry(before)
