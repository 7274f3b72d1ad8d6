"""Conformance: names, versions, columns, subresources and groups in definitions are validated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.conftest import Target, definition
from tests.apiserver.dry_runs import DEFINITIONS, objects, problems
from trioperator.apiserver.custom.definition_validation import check_definition, format_warnings
from trioperator.apiserver.custom.definitions import fill_definition

SCHEMA = objects(spec=objects(text={"type": "string"}, map={"type": "object"}))
COLUMN = {"name": "X", "type": "string", "jsonPath": ".spec.x"}
TYPES = "must be one of boolean,date,integer,number,string"
APPROVAL = 'protected groups must have approval annotation "api-approved.kubernetes.io"'
LINK = "see https://github.com/kubernetes/enhancements/pull/1111"
ANNOTATION = "metadata.annotations[api-approved.kubernetes.io]"


def made(**version: Any) -> dict[str, Any]:
    """Return a definition whose version has these fields."""
    return definition("cases", "Case", **{"schema": {"openAPIV3Schema": SCHEMA}, **version})


def in_group(group: str, approval: str | None = None) -> dict[str, Any]:
    obj = definition("cases", "Case", group=group)
    if approval is not None:
        obj["metadata"]["annotations"] = {"api-approved.kubernetes.io": approval}
    return obj


def named(**names: Any) -> dict[str, Any]:
    obj = made()
    obj["spec"]["names"] |= names
    return obj


def with_scale(**scale: str) -> dict[str, Any]:
    return made(subresources={"scale": scale})


def selecting(*paths: str) -> dict[str, Any]:
    return made(selectableFields=[{"jsonPath": path} for path in paths])


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (named(singular="X"), "spec.names.singular", 'Invalid value: "X": a DNS-1035 label must consist of'),
        (named(shortNames=["a b"]), "spec.names.shortNames[0]", 'Invalid value: "a b": a DNS-1035 label must consist'),
        (named(categories=["A"]), "spec.names.categories[0]", 'Invalid value: "A": a DNS-1035 label must consist of'),
        (named(listKind="x.y"), "spec.names.listKind", 'Invalid value: "x.y": may have mixed case, but should'),
        (named(listKind="Case"), "spec.names.listKind", 'Invalid value: "Case": kind and listKind may not be the same'),
        (in_group("Bad.dev"), "metadata.name", 'Invalid value: "cases.Bad.dev": a lowercase RFC 1123 subdomain'),
        (in_group("nodot"), "spec.group", 'Invalid value: "nodot": should be a domain with at least one dot'),
        (in_group("a.k8s.io"), ANNOTATION, f"Required value: {APPROVAL}, {LINK}"),
        (
            in_group("a.kubernetes.io", "yes"),
            ANNOTATION,
            f'Invalid value: "yes": {APPROVAL} with either a URL or a reason starting with "unapproved", {LINK}',
        ),
        (made(name="V1"), "spec.version", 'Invalid value: "V1": a DNS-1035 label must consist of'),
        (
            made(deprecationWarning="x"),
            "spec.versions[0].deprecationWarning",
            'Invalid value: "x": can only be set for deprecated versions',
        ),
        (
            made(deprecated=True, deprecationWarning="é\n"),
            "spec.versions[0].deprecationWarning",
            'Invalid value: "é\\n": must only contain printable UTF-8 characters; non-printable character found at '
            "index 2",
        ),
        (
            made(deprecated=True, deprecationWarning=""),
            "spec.versions[0].deprecationWarning",
            'Invalid value: "": must not be an empty string',
        ),
        (with_scale(), "spec.subresources.scale.specReplicasPath", "Required value"),
        (
            with_scale(specReplicasPath=".a.b", statusReplicasPath=".status.r"),
            "spec.subresources.scale.specReplicasPath",
            'Invalid value: ".a.b": should be a json path under .spec',
        ),
        (
            with_scale(specReplicasPath=".spec.r", statusReplicasPath="status.r"),
            "spec.subresources.scale.statusReplicasPath",
            'Invalid value: "status.r": must be a simple json path starting with .',
        ),
        (
            with_scale(specReplicasPath=".spec.r", statusReplicasPath=".status.r", labelSelectorPath=".a"),
            "spec.subresources.scale.labelSelectorPath",
            'Invalid value: ".a": should be a json path under either .spec or .status',
        ),
        (
            made(additionalPrinterColumns=[{**COLUMN, "type": "object"}]),
            "spec.additionalPrinterColumns[0].type",
            f'Invalid value: "object": {TYPES}',
        ),
        (
            made(additionalPrinterColumns=[COLUMN, {**COLUMN, "jsonPath": "spec.x"}]),
            "spec.additionalPrinterColumns[1].JSONPath",
            'Invalid value: "spec.x": must be a simple json path starting with .',
        ),
        (
            made(additionalPrinterColumns=[{**COLUMN, "format": "x"}]),
            "spec.additionalPrinterColumns[0].format",
            'Invalid value: "x": must be one of byte,date,date-time,double,float,int32,int64,password',
        ),
        (
            selecting(".spec.none"),
            "spec.selectableFields[0].jsonPath",
            'Invalid value: ".spec.none": is an invalid path: does not refer to a valid field',
        ),
        (
            selecting(".spec.map"),
            "spec.selectableFields[0].jsonPath",
            'Invalid value: ".spec.map": must point to a field of type string, boolean or integer.',
        ),
        (
            selecting(".spec.text", ".spec.text"),
            "spec.selectableFields[1].jsonPath",
            'Duplicate value: ".spec.text"',
        ),
    ],
)
async def test_an_invalid_definition_is_rejected(target: Target, obj: dict[str, Any], field: str, message: str) -> None:
    found_field, text = (await problems(target, obj))[0]
    assert found_field == field
    assert text.startswith(message)


@pytest.mark.parametrize("approval", ["unapproved, for tests", "https://github.com/kubernetes/kubernetes/pull/78458"])
async def test_protected_groups_need_an_annotation(target: Target, approval: str) -> None:
    assert await problems(target, in_group("a.k8s.io", approval)) == []
    assert await problems(target, in_group("a.x-k8s.io")) == []


def second_version(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return a definition with a second version, changed by the function."""
    obj = made()
    obj["spec"]["versions"].append({**copy.deepcopy(obj["spec"]["versions"][0]), "name": "v2", "storage": False})
    change(obj["spec"]["versions"][1])
    return obj


async def test_paths_of_errors_depend_on_what_versions_share(target: Target) -> None:
    """The real server hoists what all versions share to the fields of an older API version."""

    def change(version: dict[str, Any]) -> None:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}

    assert await problems(target, second_version(change)) == [
        (
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type",
            "Required value: must not be empty for specified object fields",
        )
    ]
    obj = second_version(lambda version: None)
    for version in obj["spec"]["versions"]:
        version["additionalPrinterColumns"] = [{**COLUMN, "type": "bad"}]
    assert await problems(target, obj) == [("spec.additionalPrinterColumns[0].type", f'Invalid value: "bad": {TYPES}')]


async def test_groups_and_plural_names_are_immutable(target: Target) -> None:
    path = f"{DEFINITIONS}/frees.conformance.dev"
    for spec, field in (({"group": "other.dev"}, "spec.group"), ({"names": {"plural": "zs"}}, "spec.names.plural")):
        answer = await target.merge(path, {"spec": spec}, dryRun="All")
        (cause,) = answer.content["details"]["causes"]
        assert cause["field"] == field
        assert cause["message"].endswith("field is immutable")


def test_what_was_stored_before_it_was_validated_may_stay() -> None:
    old = in_group("a.k8s.io")
    old["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"properties": {"a": {}}}
    fill_definition(old)
    old["status"] = {"storedVersions": ["v1"]}
    assert {cause.field for cause in check_definition(old, None)} >= {ANNOTATION}
    assert list(check_definition(old, old)) == []


def test_only_new_formats_get_warnings() -> None:
    old = made(schema={"openAPIV3Schema": objects(a={"type": "string", "format": "x"})})
    new = made(schema={"openAPIV3Schema": objects(a={"format": "x"}, b={"format": "y"})})
    assert format_warnings(new, old) == ['unrecognized format "y"']
    assert format_warnings(old, None) == ['unrecognized format "x"']
