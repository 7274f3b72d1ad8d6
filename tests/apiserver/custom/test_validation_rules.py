"""Conformance: CEL rules of custom kinds, and ratcheting; warnings for rules that are not evaluated."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, Answer, Target, definition, ensure_definition
from trioperator.apiserver import Cluster
from trioperator.apiserver.custom.cel_values import escaped

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = "x-kubernetes-validations"
TEXT = {"type": "string", "maxLength": 20}
WHOLE = {"type": "integer"}


def ruled(node: dict[str, Any], *rules: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema with rules."""
    return {**node, RULES: [{"rule": rule, **more} if isinstance(rule, str) else rule for rule in rules]}


def record(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties}


def keyed(item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list with keys."""
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}
    return {"type": "array", "maxItems": 4, "items": item, **keys}


def few(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a short list."""
    return {"type": "array", "maxItems": 4, "items": items}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a small map."""
    return {"type": "object", "maxProperties": 4, "additionalProperties": values}


OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EMBEDDED = {**OPEN, "x-kubernetes-embedded-resource": True}
PAIR = {**record(key=TEXT, value=WHOLE), "required": ["key"]}
SPEC = {
    "plain": ruled(record(a=WHOLE), "self.a > 1"),
    "worded": ruled(record(a=WHOLE), "self.a > 1", message="a is too small"),
    "scalar": ruled(WHOLE, "self > 1"),
    "items": {"type": "array", "maxItems": 3, "items": ruled(WHOLE, "self > 1")},
    "texts": {"type": "object", "maxProperties": 3, "additionalProperties": ruled(TEXT, "self != ''")},
    "fixed": ruled(TEXT, "self == oldSelf", message="it is immutable"),
    "growing": ruled(WHOLE, "!oldSelf.hasValue() || self >= oldSelf.value()", optionalOldSelf=True),
    "pairs": keyed(ruled(PAIR, "self.value >= oldSelf.value")),
    "set": ruled({"type": "array", "maxItems": 3, "items": TEXT, "x-kubernetes-list-type": "set"}, "self == oldSelf"),
    "forbidden": ruled(record(a=WHOLE), "self.a > 1", reason="FieldValueForbidden", fieldPath=".a"),
    "required": ruled(record(a=WHOLE), "has(self.a)", reason="FieldValueRequired", message="say a"),
    "duplicate": ruled(WHOLE, "self > 1", reason="FieldValueDuplicate"),
    "telling": ruled(record(a=TEXT), "self.a == ''", messageExpression="'no ' + self.a", message="nothing, please"),
    "number": ruled(record(a={"type": "number"}), "self.a + 0.5 > 1.0"),
    "maybe": ruled(record(a={**WHOLE, "nullable": True}), "!has(self.a)"),
    "names": ruled(
        record(**{"a-b": WHOLE, "c.d/e": WHOLE, "f__g": WHOLE, "namespace": WHOLE}),
        "self.a__dash__b + self.c__dot__d__slash__e + self.f__underscores__g + self.__namespace__ == 4",
    ),
    "divided": ruled(WHOLE, "1 / self == 1"),
    "third": ruled({"type": "array", "maxItems": 3, "items": WHOLE}, "self[2] > 0", message="m"),
    "port": ruled({"x-kubernetes-int-or-string": True}, "self > 3"),
    "quantity": ruled(TEXT, "isQuantity(self) && quantity(self).isLessThan(quantity('1Gi'))"),
    "url": ruled(TEXT, "isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() == 'a.b'"),
    "address": ruled(TEXT, "isIP(self) && cidr('10.0.0.0/8').containsIP(self)"),
    "release": ruled(TEXT, "isSemver(self) && semver(self).isLessThan(semver('1.10.0'))"),
    "words": ruled(TEXT, "self.matches('^[a-z ]+$') && self.split(' ').size() == 2 && self.upperAscii() == 'A B'"),
    "embedded": ruled(
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        "self.kind == 'Pod' && self.metadata.name.startsWith('x')",
    ),
}
SCHEMA = ruled(record(spec=record(**SPEC), status=record(count=ruled(WHOLE, "self >= oldSelf"))), "self.kind != 'X'")
RULED = definition("ruleds", "Ruled", schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}})


async def create(target: Target, spec: dict[str, Any]) -> Answer:
    """Create an object of the kind with all the rules."""
    await ensure_definition(target, RULED)
    obj = {"apiVersion": f"{GROUP}/v1", "kind": "Ruled", "metadata": {"name": "a"}, "spec": spec}
    return await target.request("POST", target.path("ruleds"), obj)


def causes(answer: Answer) -> list[tuple[str, str, str]]:
    """Return the sorted causes of an error response: the real server's order is random."""
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.content
    found = answer.content["details"]["causes"]
    return sorted((cause["field"], cause["reason"], cause["message"]) for cause in found)


class TestNewObjects:
    @pytest.mark.parametrize(
        ("spec", "field", "message"),
        [
            ({"plain": {"a": 1}}, "spec.plain", "Invalid value: failed rule: self.a > 1"),
            ({"worded": {"a": 1}}, "spec.worded", "Invalid value: a is too small"),
            ({"scalar": 1}, "spec.scalar", "Invalid value: 1: failed rule: self > 1"),
            ({"items": [2, 1]}, "spec.items[1]", "Invalid value: 1: failed rule: self > 1"),
            ({"texts": {"x": ""}}, "spec.texts[x]", "Invalid value: \"\": failed rule: self != ''"),
            ({"telling": {"a": "x"}}, "spec.telling", "Invalid value: no x"),
            ({"telling": {"a": "x\ny"}}, "spec.telling", "Invalid value: nothing, please"),
            ({"number": {"a": 0}}, "spec.number", "Invalid value: failed rule: self.a + 0.5 > 1.0"),
            (
                {"plain": {}},
                "spec.plain",
                'Invalid value: "object": no such key: a evaluating rule: self.a > 1',
            ),
            (
                {"divided": 0},
                "spec.divided",
                'Invalid value: "integer": division by zero evaluating rule: 1 / self == 1',
            ),
            ({"third": [1]}, "spec.third", 'Invalid value: "array": index out of bounds: 2 evaluating rule: m'),
            (
                {"port": "x"},
                "spec.port",
                "Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function "
                "or macro signature for rule: self > 3",
            ),
        ],
    )
    async def test_violations_of_rules_are_rejected(
        self, target: Target, spec: dict[str, Any], field: str, message: str
    ) -> None:
        assert causes(await create(target, spec)) == [(field, "FieldValueInvalid", message)]

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (
                {"forbidden": {"a": 1}},
                ("spec.forbidden.a", "FieldValueForbidden", "Forbidden: failed rule: self.a > 1"),
            ),
            ({"required": {}}, ("spec.required", "FieldValueRequired", "Required value: say a")),
            ({"duplicate": 1}, ("spec.duplicate", "FieldValueDuplicate", "Duplicate value: 1")),
        ],
    )
    async def test_a_rule_sets_the_reason_of_its_error(
        self, target: Target, spec: dict[str, Any], expected: tuple[str, str, str]
    ) -> None:
        assert causes(await create(target, spec)) == [expected]

    @pytest.mark.parametrize(
        ("good", "bad"),
        [
            ({"quantity": "1000Mi"}, {"quantity": "1025Mi"}),
            ({"url": "https://a.b:1/x"}, {"url": "http://a.b"}),
            ({"address": "10.1.2.3"}, {"address": "11.1.2.3"}),
            ({"release": "1.9.3"}, {"release": "1.10.1"}),
            ({"words": "a b"}, {"words": "a c"}),
            ({"maybe": {"a": None}}, {"maybe": {"a": 1}}),
            ({"number": {"a": 1}}, {"number": {"a": 0.5}}),
            ({"names": {"a-b": 1, "c.d/e": 1, "f__g": 1, "namespace": 1}},) * 2,
            (
                {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}},
                {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "y"}}},
            ),
        ],
    )
    async def test_rules_see_values_with_their_schema_types(
        self, target: Target, good: dict[str, Any], bad: dict[str, Any]
    ) -> None:
        if bad is not good:
            causes(await create(target, bad))
        answer = await create(target, good)
        assert answer.code == 201, answer.content
        assert "Warning" not in answer.headers

    async def test_rules_are_not_evaluated_for_otherwise_invalid_objects(self, target: Target) -> None:
        text = (
            "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
            "existing errors to complete validation"
        )
        found = causes(await create(target, {"scalar": 1, "plain": {"a": "x"}}))
        assert found[0] == ("<nil>", "FieldValueInvalid", text)
        assert [field for field, _, _ in found[1:]] == ["spec.plain.a"]


class TestChanges:
    async def test_rules_can_use_the_old_value(self, target: Target) -> None:
        path = target.path("ruleds", "a")
        spec = {"fixed": "x", "growing": 1, "set": ["a", "b"], "pairs": [{"key": "x", "value": 1}]}
        assert (await create(target, spec)).code == 201
        assert causes(await target.merge(path, {"spec": {"fixed": "y"}})) == [
            ("spec.fixed", "FieldValueInvalid", 'Invalid value: "y": it is immutable')
        ]
        rule = "!oldSelf.hasValue() || self >= oldSelf.value()"
        assert causes(await target.merge(path, {"spec": {"growing": 0}})) == [
            ("spec.growing", "FieldValueInvalid", f"Invalid value: 0: failed rule: {rule}")
        ]
        change = {"growing": 2, "set": ["b", "a"], "pairs": [{"key": "y", "value": 0}, {"key": "x", "value": 2}]}
        assert (await target.merge(path, {"spec": change})).code == 200
        change["pairs"] = [{"key": "y", "value": 0}, {"key": "x", "value": 1}]
        assert causes(await target.merge(path, {"spec": change})) == [
            ("spec.pairs[1]", "FieldValueInvalid", "Invalid value: failed rule: self.value >= oldSelf.value")
        ]
        assert (await target.merge(path, {"spec": {"fixed": None}})).code == 200

    async def test_rules_apply_to_the_status_too(self, target: Target) -> None:
        assert (await create(target, {})).code == 201
        path = target.path("ruleds", "a", "status")
        assert (await target.merge(path, {"status": {"count": 2}})).code == 200
        assert causes(await target.merge(path, {"status": {"count": 1}})) == [
            ("status.count", "FieldValueInvalid", "Invalid value: 1: failed rule: self >= oldSelf")
        ]

    async def test_unchanged_invalid_values_do_not_block_updates(self, target: Target, unique: str) -> None:
        old, new = (
            record(a=TEXT, b=TEXT),
            record(a={**TEXT, "maxLength": 2}, b=ruled(TEXT, "self == 'x'", message="b!")),
        )
        obj = definition(unique, unique.title(), schema={"openAPIV3Schema": record(spec=old)})
        await ensure_definition(target, obj)
        path, place = f"{DEFINITIONS}/{unique}.{GROUP}", target.path(unique, "a")
        made = {"apiVersion": f"{GROUP}/v1", "kind": unique.title(), "metadata": {"name": "a"}}
        await target.request("POST", target.path(unique), {**made, "spec": {"a": "long", "b": "y"}})
        obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = record(spec=new)
        assert (await target.merge(path, {"spec": obj["spec"]})).code == 200
        probe = {**made, "metadata": {"name": "b"}, "spec": {"a": "long"}}
        await target.eventually(
            lambda: target.request("POST", target.path(unique), probe, dryRun="All"), lambda answer: answer.code == 422
        )
        answer = await target.merge(place, {"metadata": {"labels": {"x": "y"}}})
        assert answer.code == 200, answer.content
        assert answer.headers.get_list("Warning") == ['299 - "spec.b: Invalid value: \\"y\\": b!"']
        too_long = ("spec.a", "FieldValueTooLong", "Too long: may not be more than 2 bytes")
        assert causes(await target.merge(place, {"spec": {"a": "lang"}}))[-1] == too_long
        assert causes(await target.merge(place, {"spec": {"b": "z"}})) == [
            ("spec.b", "FieldValueInvalid", 'Invalid value: "z": b!')
        ]
        await target.delete(path)


class TestDefinitions:
    async def rejected(self, target: Target, schema: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Create a definition with this schema of spec; return the causes of the error."""
        obj = definition("bads", "Bad", schema={"openAPIV3Schema": record(spec=schema)})
        start = "spec.validation.openAPIV3Schema.properties[spec]."
        return [
            (field.removeprefix(start), reason, message)
            for field, reason, message in causes(await target.request("POST", DEFINITIONS, obj))
        ]

    @pytest.mark.parametrize(
        ("rule", "field", "message"),
        [
            ({"rule": " "}, "rule", "Required value: rule is not specified"),
            ({"rule": "self.a > 1", "message": " "}, "message", 'Invalid value: " ": must be non-empty if specified'),
            (
                {"rule": "self.a\n> 1"},
                "message",
                "Required value: message must be specified if rule contains line breaks",
            ),
            (
                {"rule": "self.a > 1", "reason": "Bad"},
                "reason",
                'Unsupported value: "Bad": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
                '"FieldValueInvalid", "FieldValueRequired"',
            ),
            ({"rule": "self.a > 1", "fieldPath": ".b"}, "fieldPath", 'Invalid value: ".b": must be a valid path'),
            (
                {"rule": "self.a > 1", "optionalOldSelf": True},
                "optionalOldSelf",
                "Invalid value: true: may not be set if oldSelf is not used in rule",
            ),
        ],
    )
    async def test_a_rule_must_be_well_formed(
        self, target: Target, rule: dict[str, Any], field: str, message: str
    ) -> None:
        found = await self.rejected(target, ruled(record(a=WHOLE), rule))
        assert [(at, text) for at, _, text in found] == [(f"{RULES}[0].{field}", message)]

    @pytest.mark.parametrize(
        ("rule", "problem"),
        [
            ("self.a >", "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>'"),
            ("nobody > 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody'"),
            ("'a' + 1 == 2", "compilation failed: ERROR: <input>:1:5: found no matching overload for '_+_'"),
            ("1 + 1", "cel expression must evaluate to a bool"),
        ],
    )
    async def test_a_rule_must_be_a_boolean_expression(self, target: Target, rule: str, problem: str) -> None:
        ((field, reason, message),) = await self.rejected(target, ruled(record(a=WHOLE), rule))
        shown = rule.replace(">", "\\u003e")
        rest = '"Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null'
        assert (field, reason) == (f"{RULES}[0].rule", "FieldValueInvalid")
        assert message.startswith(f'Invalid value: {{"Rule":"{shown}",{rest}}}: {problem}')

    @pytest.mark.parametrize(
        ("node", "rule", "problem"),
        [
            (record(a=WHOLE), "self.b > 1", "1:5: undefined field 'b'\n | self.b > 1\n | ....^"),
            (record(a=WHOLE), "true &&\n self.b > 1", "2:6: undefined field 'b'"),
            (record(a=TEXT), "self.a > 1", "1:8: found no matching overload for '_>_' applied to '(string, int)'"),
            (record(a=record(b=WHOLE)), "has(self.a.c)", "1:4: undefined field 'c'"),
            (record(a=few(record(b=WHOLE))), "self.a.all(x, x.c > 1)", "1:16: undefined field 'c'"),
            (record(a=mapping(record(b=WHOLE))), "self.a.all(k, self.a[k].c > 1)", "1:24: undefined field 'c'"),
            (few(record(b=WHOLE)), "self[0].c == 1", "1:8: undefined field 'c'"),
            (record(a=TEXT), "self.a == oldSelf.b", "1:18: undefined field 'b'"),
            (record(a=OPEN), "self.a.b == 1", "1:7: undefined field 'b'"),
            (EMBEDDED, "self.metadata.namespace == 'a'", "1:14: undefined field 'namespace'"),
            (record(a=TEXT), "self.?b.hasValue()", "undefined field 'b'"),
        ],
    )
    async def test_a_rule_must_fit_the_schema(
        self, target: Target, node: dict[str, Any], rule: str, problem: str
    ) -> None:
        ((field, _, message),) = await self.rejected(target, ruled(node, {"rule": rule, "message": "m"}))
        assert field == f"{RULES}[0].rule"
        assert "}: compilation failed: ERROR: <input>:" in message
        assert problem in message

    @pytest.mark.parametrize(
        ("expression", "problem"),
        [("'x' + self.b", "1:11: undefined field 'b'"), ("self.a", "messageExpression must evaluate to a string")],
    )
    async def test_a_message_must_fit_the_schema(self, target: Target, expression: str, problem: str) -> None:
        rule = {"rule": "self.a > 1", "messageExpression": expression}
        ((field, _, message),) = await self.rejected(target, ruled(record(a=WHOLE), rule))
        assert field == f"{RULES}[0].messageExpression"
        assert problem in message

    async def test_the_optional_old_value_has_the_type_of_the_value(self, target: Target) -> None:
        rule = {"rule": "!oldSelf.hasValue() || oldSelf.value().b > 1", "optionalOldSelf": True}
        found = await self.rejected(target, ruled(record(a=WHOLE), rule))
        assert {field: message.partition("\n")[0][-19:] for field, _, message in found} == {
            f"{RULES}[0].optionalOldSelf": "is not used in rule",
            f"{RULES}[0].rule": "undefined field 'b'",
        }

    @pytest.mark.parametrize("name", ["a", "a-b", "namespace"])
    async def test_the_value_of_a_rule_is_a_boolean(self, target: Target, name: str) -> None:
        rule = f"self.{escaped(name)}"
        ((_, _, message),) = await self.rejected(target, ruled(record(**{name: TEXT}), rule))
        assert message.endswith("cel expression must evaluate to a bool")

    @pytest.mark.parametrize(
        ("node", "rule"),
        [
            (record(a=WHOLE), "self.a > 1.5"),
            (record(a={"x-kubernetes-int-or-string": True}), "self.a == 1 || self.a == '50%'"),
            (record(a=few(few(WHOLE))), "self.a.all(x, x.all(y, y > 1))"),
            (record(a=few(mapping(WHOLE))), "self.a.all(x, x.all(k, x[k] > 1))"),
            (record(a=mapping(few(TEXT))), "self.a.all(k, self.a[k].size() > 1)"),
            (record(a=record(b=WHOLE)), "self.a == {'b': 1} || true"),
            (record(a=record(b=WHOLE)), "!has(oldSelf.a) || self.a == oldSelf.a // it stays"),
            (record(a={"type": "string", "format": "duration"}), "self.a < duration('1h')"),
            (record(a={"type": "boolean"}, b={"type": "number"}), "!self.a || self.b > 1.0"),
            (record(a_b=mapping(WHOLE), aB=mapping(TEXT)), "self.a_b.all(k, self.a_b[k] > 1) && self.aB['c'] == 'd'"),
            (EMBEDDED, "self.metadata.name == 'a' && self.kind == 'Pod'"),
            (record(a_b=TEXT, aB=TEXT, a=few(TEXT)), "self.a_b == self.aB && self.a_b.matches('^a$') && 'b' in self.a"),
        ],
    )
    async def test_a_rule_that_fits_the_schema_is_accepted(
        self, target: Target, node: dict[str, Any], rule: str
    ) -> None:
        schema = record(spec=ruled(node, rule))
        body = definition("fitting", "Fitting", schema={"openAPIV3Schema": schema})
        answer = await target.request("POST", DEFINITIONS, body, dryRun="All")
        if "{'b': 1}" in rule:
            assert "found no matching overload for '_==_'" in answer.message
        else:
            assert answer.code == 201, answer.message

    async def test_old_values_need_correlatable_lists(self, target: Target) -> None:
        items = {"type": "array", "maxItems": 3, "items": ruled(WHOLE, "self == oldSelf")}
        ((field, _, message),) = await self.rejected(target, record(a=items))
        assert field == f"properties[a].items.{RULES}[0].rule"
        assert message.startswith(
            'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion'
        )


class TestTheEmbeddedServer:
    """Warnings of the embedded server for rules that it cannot evaluate."""

    async def warnings(self, schema: dict[str, Any]) -> list[str]:
        """Create a definition with this schema of spec."""
        obj = definition("ruleds", "Ruled", schema={"openAPIV3Schema": record(spec=schema)})
        async with Cluster(seed=0).client() as client:
            answer = await client.post(DEFINITIONS, json=obj)
            assert answer.status_code == 201, answer.text
            return answer.headers.get_list("Warning")

    async def test_a_warning_is_logged_for_rules_without_the_cel_library(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "cel_expr_python", None)
        with caplog.at_level(logging.WARNING):
            found = await self.warnings(ruled(record(a=WHOLE), "self.a > 1"))
        text = "version v1: CEL rules are not evaluated (pip install 'trioperator[cel]')"
        assert found == [f'299 - "{text}"']
        assert caplog.messages == [f"Definition ruleds.{GROUP}: {text}"]
        assert await self.warnings(record(a=WHOLE)) == []

    @pytest.mark.parametrize(
        ("rule", "problem"),
        [
            ("!format.dns1123Label().validate(self.a).hasValue()", "undeclared reference to 'format'"),
            ("[1, 2].lastIndexOf(2) == 1", "found no matching overload for 'lastIndexOf'"),
            ("self.when > timestamp('2020-01-01T00:00:00Z')", "when of format date-time is a string here"),
        ],
    )
    async def test_a_warning_is_logged_for_functions_that_the_library_lacks(self, rule: str, problem: str) -> None:
        (warning,) = await self.warnings(ruled(record(a=TEXT, when={"type": "string", "format": "date-time"}), rule))
        assert problem in warning

    async def test_no_warning_is_logged_for_times_that_are_converted(self) -> None:
        rule = "timestamp(self.when) > timestamp('2020-01-01T00:00:00Z')"
        assert await self.warnings(ruled(record(when={"type": "string", "format": "date-time"}), rule)) == []
