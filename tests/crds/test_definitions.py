"""Tests for :mod:`trioperator.crds.definitions`: what API servers accept, and refuse as the classes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest

from tests.crds.classes import CASES, REGISTRY
from tests.crds.judging import assert_judged, make_object
from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator.apiserver import Cluster
from trioperator.cli.crds import dump_definitions
from trioperator.errors import ConfigError, PermanentError


def by_class(values: str) -> Callable[[Any], Any]:
    chosen = [(case.cls, spec) for case in CASES for spec in getattr(case, values)]
    ids = [f"{cls.__name__}-{number}" for number, (cls, _) in enumerate(chosen)]
    return pytest.mark.parametrize(("cls", "spec"), chosen, ids=ids)


@by_class("accepted")
def test_classes_accept(cls: type, spec: dict[str, Any]) -> None:
    crds.decode(cls, make_object(cls, spec))


@by_class("refused")
def test_classes_refuse(cls: type, spec: dict[str, Any]) -> None:
    with pytest.raises(PermanentError, match=r"^It is not a valid "):
        crds.decode(cls, make_object(cls, spec))


async def test_the_embedded_server_refuses_what_the_classes_refuse(cluster: Cluster) -> None:
    for definition in crds.collect_definitions(REGISTRY):
        await cluster.apply(definition)
    for case in CASES:
        await assert_judged(case, cluster.create)


class Size(msgspec.Struct):
    cpu: crds.Quantity


class Room(msgspec.Struct):
    spec: Size


class TestDefinition:
    def test_definitions_are_the_same_to_the_byte(self) -> None:
        first, second = (dump_definitions(crds.collect_definitions(REGISTRY)) for _ in range(2))
        assert first == second
        shuffled = OperatorRegistry()
        for cls in reversed(REGISTRY.kinds()):
            shuffled.add_kind(cls)
        assert dump_definitions(crds.collect_definitions(shuffled)) == first

    def test_definitions_are_sorted_by_name(self) -> None:
        names = [definition["metadata"]["name"] for definition in crds.collect_definitions(REGISTRY)]
        assert names == sorted(names)
        assert len(names) == 10

    def test_names_and_scope(self) -> None:
        found = definition_of("texts")["spec"]
        assert found["names"] == {
            "kind": "Text",
            "listKind": "TextList",
            "plural": "texts",
            "singular": "text",
            "shortNames": ["txt"],
            "categories": ["typed"],
        }
        assert found["scope"] == "Namespaced"
        assert definition_of("choices")["spec"]["scope"] == "Cluster"

    def test_columns_have_the_types_of_their_fields_and_end_with_the_age(self) -> None:
        assert version_of("scaleds")["additionalPrinterColumns"] == [
            {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas", "description": "What is wanted."},
            {"name": "Seen", "type": "integer", "jsonPath": ".status.replicas", "format": "int32"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
        assert [column["name"] for column in version_of("moments")["additionalPrinterColumns"]] == ["At", "Age"]
        assert version_of("moments")["additionalPrinterColumns"][0]["type"] == "date"

    def test_columns_show_quantities_as_strings(self) -> None:
        registry = OperatorRegistry()
        column = crds.Column("CPU", ".spec.cpu")
        crds.kind("example.com/v1", columns=[column], registry=registry)(Room)
        [definition] = crds.collect_definitions(registry)
        [shown, _] = definition["spec"]["versions"][0]["additionalPrinterColumns"]
        assert shown == {"name": "CPU", "type": "string", "jsonPath": ".spec.cpu"}

    def test_a_status_is_a_subresource_beside_the_scale(self) -> None:
        assert version_of("scaleds")["subresources"] == {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        }
        assert "subresources" not in version_of("texts")

    def test_a_status_has_no_defaults(self) -> None:
        schema = version_of("scaleds")["schema"]["openAPIV3Schema"]["properties"]
        assert schema["spec"]["properties"]["replicas"]["default"] == 1
        assert "default" not in schema["status"]["properties"]["replicas"]

    def test_a_deprecated_version_has_its_warning(self) -> None:
        assert version_of("moments")["deprecated"] is True
        assert version_of("moments")["deprecationWarning"] == "moments are over"

    def test_metadata_are_those_of_all_objects(self) -> None:
        schema = version_of("templates")["schema"]["openAPIV3Schema"]
        assert schema["properties"]["metadata"] == {"type": "object"}
        assert schema["required"] == ["spec"]


def definition_of(plural: str) -> dict[str, Any]:
    [found] = [each for each in crds.collect_definitions(REGISTRY) if each["spec"]["names"]["plural"] == plural]
    return found


def version_of(plural: str) -> dict[str, Any]:
    [version] = definition_of(plural)["spec"]["versions"]
    found: dict[str, Any] = version
    return found


class Spec(msgspec.Struct):
    size: int = 1
    at: str = ""


def make_kind(registry: OperatorRegistry, version: str = "v1", **options: Any) -> type:
    options = {"kind": "Thing", **options}

    @crds.kind(f"example.com/{version}", registry=registry, **options)
    class Thing(msgspec.Struct):
        spec: Spec

    return Thing


class TestVersions:
    def test_the_newest_version_is_the_first(self) -> None:
        registry = OperatorRegistry()
        for version in ("v1alpha1", "v2", "v1"):
            make_kind(registry, version, storage=version == "v1")
        [definition] = crds.collect_definitions(registry)
        versions = definition["spec"]["versions"]
        assert [(each["name"], each["storage"]) for each in versions] == [
            ("v2", False),
            ("v1", True),
            ("v1alpha1", False),
        ]

    @pytest.mark.parametrize("stored", [(), ("v1", "v2")])
    def test_several_versions_need_one_storage_version(self, stored: tuple[str, ...]) -> None:
        registry = OperatorRegistry()
        for version in ("v1", "v2"):
            make_kind(registry, version, storage=version in stored)
        with pytest.raises(ConfigError, match=rf"things.example.com has {len(stored)} storage versions"):
            crds.collect_definitions(registry)

    def test_versions_agree_on_the_scope(self) -> None:
        registry = OperatorRegistry()
        make_kind(registry, "v1", storage=True)
        make_kind(registry, "v2", namespaced=False)
        with pytest.raises(ConfigError, match=r"have namespaced=True and namespaced=False"):
            crds.collect_definitions(registry)

    def test_names_need_not_be_repeated(self) -> None:
        registry = OperatorRegistry()
        make_kind(registry, "v1", storage=True, short_names=["th"])
        make_kind(registry, "v2")
        [definition] = crds.collect_definitions(registry)
        assert definition["spec"]["names"]["shortNames"] == ["th"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"columns": [crds.Column("Size", ".spec.siez")]}, "column 'Size' of .* shows .spec.siez"),
        ({"columns": [crds.Column("Spec", ".spec")]}, "no scalar field"),
        ({"columns": [crds.Column("All", ".spec[*]")]}, "pass the type="),
        ({"scale": crds.Scale("spec.size")}, "has the path spec.size"),
        ({"scale": crds.Scale(".spec.at")}, "no field of type integer there"),
        ({"scale": crds.Scale(".spec.size", ".spec.size", selector=".spec.size")}, "no field of type string there"),
    ],
)
def test_wrong_paths_are_reported(options: dict[str, Any], problem: str) -> None:
    registry = OperatorRegistry()
    make_kind(registry, **options)
    with pytest.raises(ConfigError, match=problem):
        crds.collect_definitions(registry)


def test_a_column_of_a_path_that_is_no_field_has_the_type_that_is_passed() -> None:
    registry = OperatorRegistry()
    make_kind(registry, columns=[crds.Column("First", ".spec.items[0:1].name", type="string")])
    [definition] = crds.collect_definitions(registry)
    [version] = definition["spec"]["versions"]
    assert version["additionalPrinterColumns"][0]["type"] == "string"


def test_unions_of_objects_are_reported_with_their_path() -> None:
    registry = OperatorRegistry()

    @crds.kind("example.com/v1", registry=registry)
    class Wrong(msgspec.Struct):
        spec: Annotated[dict[str, list[int] | None] | None, msgspec.Meta(description="x")]
        other: dict[str, str | bool]

    with pytest.raises(ConfigError, match=r"^Wrong\.other\{\} is a union of types"):
        crds.collect_definitions(registry)
