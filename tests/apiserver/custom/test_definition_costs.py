"""Definitions that would take long to compile are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.custom.definition_costs import check_costs


def versions(*properties: dict[str, Any]) -> list[dict[str, Any]]:
    """Return versions whose schemas have these properties, somewhere below."""
    fields = {f"f{at}": schema for at, schema in enumerate(properties)}
    lists = {"type": "array", "items": {"type": "object", "additionalProperties": {"properties": fields}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"allOf": [{"not": lists}]}}}}
    return [{"name": "v1"}, {"name": "v2", "schema": schema}]


def problems(*properties: dict[str, Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in check_costs(versions(*properties), "spec.versions")]


def test_usual_definitions_are_accepted() -> None:
    rule = {"rule": "self.size() > 0", "messageExpression": "'x'"}
    assert problems({"pattern": "^a+$", "x-kubernetes-validations": [rule]}, {"pattern": "("}) == []


@pytest.mark.parametrize(
    "schemas",
    [
        [{"pattern": f"a{at}"} for at in range(1001)],
        [{"x-kubernetes-validations": [{"rule": f"self == {at}"} for at in range(2001)]}],
    ],
)
def test_the_number_of_different_patterns_and_rules_is_limited(schemas: list[dict[str, Any]]) -> None:
    assert problems(*schemas) == ["spec.versions: Forbidden: must have at most 1000 patterns and 2000 rules"]


def test_the_number_of_schemas_is_limited() -> None:
    assert problems(*[{"type": "string"}] * 9_900) == []
    many: list[list[dict[str, Any]]] = [
        [{"type": "string"}] * 10_000,
        [{"default": 1}] * 5_000,
        [{"allOf": [{}] * 5_000}],
        [{"x-kubernetes-validations": [{"rule": "true"}] * 5_000}],
    ]
    for schemas in many:
        (problem,) = problems(*schemas)
        assert "must have at most 10000 schemas and rules, with those in schemas" in problem


def test_the_paths_of_the_columns_of_a_version_are_limited() -> None:
    columns = [{"name": "a", "type": "string", "jsonPath": ".a" * 1000} for _ in range(33)]
    assert not list(check_costs([{"name": "v1", "additionalPrinterColumns": columns[:32]}], "spec.versions"))
    (cause,) = check_costs([{"name": "v1", "additionalPrinterColumns": columns}], "spec.versions")
    assert cause.field == "spec.versions[0].additionalPrinterColumns"
    assert cause.message == "Forbidden: must have paths of at most 65536 characters together"


def test_what_is_the_same_counts_once() -> None:
    assert problems(*[{"pattern": "a", "x-kubernetes-validations": [{"rule": "true"}]}] * 3000) == []


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"pattern": r"\pL{1,1000}%d"}, "patterns"),
        ({"x-kubernetes-validations": [{"rule": "self == %d" + " || self == 1" * 2000}]}, "rules"),
    ],
)
def test_patterns_and_rules_that_take_too_long_to_compile_are_forbidden(schema: dict[str, Any], what: str) -> None:
    pytest.importorskip("re2")
    pytest.importorskip("cel_expr_python")
    import msgspec

    text = msgspec.json.encode(schema)
    schemas = [msgspec.json.decode(text.replace(b"%d", b"%d" % at)) for at in range(100)]
    assert problems(*schemas) == [f"spec.versions: Forbidden: the {what} take too long to compile"]
