"""Admission policies: validations and mutations by CEL expressions, in place of webhooks.

Mutating policies come before mutating webhooks, validating ones before validating webhooks, each in the order of the
names of its bindings. Without the CEL library, policies have no effect.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from trioperator.errors import ApiError

from ..bodies.decoding import WriteOptions, decode_object
from ..bodies.patching import apply_operations
from ..custom.cel import Conditions, compile_expression, is_installed
from ..custom.cel_objects import plain_literals
from ..model.errors import forbidden
from ..model.selectors import selector_of
from ..ownership.field_types import type_of_kind
from ..ownership.merge import merge
from ..store.state import State
from .admission_review import make_review
from .matching import FOREIGN_KINDS, AdmissionAttributes, Policy, select

_log: Final = logging.getLogger(__name__)

Object: TypeAlias = dict[str, Any]
_GROUP: Final = "admissionregistration.k8s.io"
_VARIABLES: Final = ("namespaceObject", "object", "oldObject", "params", "request", "variables")
_CODES: Final = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401}


@dataclasses.dataclass(frozen=True, slots=True)
class _Bound:
    """A policy with one of its bindings, the parameters of which are *params*."""

    policy: Mapping[str, Any]
    binding: Mapping[str, Any]
    params: Mapping[str, Any] | None

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.policy["spec"]
        return spec

    @property
    def ignores_failures(self) -> bool:
        return self.spec.get("failurePolicy") == "Ignore"

    def describe(self, kind: str) -> str:
        return f"{kind} '{self.policy['metadata']['name']}' with binding '{self.binding['metadata']['name']}'"


class AdmissionPolicies:
    """Admission policies of one cluster, as currently bound."""

    def __init__(self, state: State) -> None:
        self._state = state

    def any_match(self, attributes: AdmissionAttributes) -> bool:
        """Return whether a validating policy may match."""
        return any(True for _ in self._bound("validating", attributes))

    def mutate(self, attributes: AdmissionAttributes) -> AdmissionAttributes:
        """Return the attributes with the object as the policies change it. Raises ApiError if one fails."""
        if attributes.new is None or attributes.subresource in FOREIGN_KINDS:
            return attributes
        for bound in self._bound("mutating", attributes):
            try:
                data = self._data(bound, attributes)
                if data is not None:
                    new = self._mutated(bound, data, attributes)
                    attributes = dataclasses.replace(attributes, new=new)
            except ValueError as error:
                self._fail(bound, "MutatingAdmissionPolicy", attributes, str(error))
        return attributes

    def validate(self, attributes: AdmissionAttributes) -> None:
        """Raise ApiError for the first validation that denies the write."""
        for bound in self._bound("validating", attributes):
            try:
                data = self._data(bound, attributes)
            except ValueError as error:
                self._fail(bound, "ValidatingAdmissionPolicy", attributes, str(error))
                continue
            for validation in bound.spec.get("validations") or () if data is not None else ():
                self._check(bound, validation, data or {}, attributes)

    # -- matching -------------------------------------------------------------------------------------------------

    def _bound(self, sort: str, attributes: AdmissionAttributes) -> Iterator[_Bound]:
        """Yield the policies whose constraints, and those of a binding, match the write."""
        store = self._state.store
        bindings = store.table((_GROUP, f"{sort}admissionpolicybindings"))
        if not bindings.objects or attributes.is_exempt or not is_installed():
            return
        policies = store.table((_GROUP, f"{sort}admissionpolicies")).objects
        found = store.table(("", "namespaces")).objects.get(attributes.namespace)
        namespace = None if found is None else found.obj
        for key in bindings.keys():  # noqa: SIM118 -- in order
            binding = bindings.objects[key].obj
            policy = policies.get(binding["spec"]["policyName"])
            if policy is None:
                continue
            for constraints in (policy.obj["spec"].get("matchConstraints"), binding["spec"].get("matchResources")):
                if constraints and not _matches(constraints, attributes, namespace):
                    break
            else:
                for params in self._params(policy.obj, binding, attributes):
                    yield _Bound(policy.obj, binding, params)

    def _params(
        self, policy: Mapping[str, Any], binding: Mapping[str, Any], attributes: AdmissionAttributes
    ) -> Iterator[Mapping[str, Any] | None]:
        """Yield the parameters that the binding names, or None if the policy has none."""
        wanted, reference = policy["spec"].get("paramKind"), binding["spec"].get("paramRef")
        kind = None if not wanted else self._state.catalog.by_object(wanted["apiVersion"], wanted["kind"])
        if not wanted or not reference:
            yield None
            return
        namespace = reference.get("namespace") or attributes.namespace
        found = []
        if kind is not None:
            table = self._state.table(kind)
            objects = (table.objects[key].obj for key in table.keys(f"{namespace}/" if kind.namespaced else ""))
            selector = selector_of(reference.get("selector") or {})
            name = reference.get("name")
            found = [obj for obj in objects if (obj["metadata"]["name"] == name if name else selector.matches(obj))]
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            text = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise _denied(attributes, text, "Invalid")
        yield from found

    def _data(self, bound: _Bound, attributes: AdmissionAttributes) -> Object | None:
        """Return what expressions can use; None if the conditions of the policy are not met."""
        namespace = self._state.store.table(("", "namespaces")).objects.get(attributes.namespace)
        review = make_review("v1", "", attributes, attributes.kind)
        request = _plain(review["request"])
        conditions = [(item["name"], item["expression"]) for item in bound.spec.get("matchConditions") or ()]
        if not Conditions().are_met(conditions, request, ignores_failures=bound.ignores_failures):
            return None
        data: Object = {
            "object": request.pop("object"),
            "oldObject": request.pop("oldObject"),
            "request": request,
            "namespaceObject": _plain(namespace.obj) if namespace and attributes.kind.namespaced else None,
            "params": _plain(bound.params),
            "variables": {},
        }
        for variable in bound.spec.get("variables") or ():
            try:
                data["variables"][variable["name"]] = _evaluate(variable["expression"], data)
            except ValueError:
                continue  # whatever refers to it fails
        return data

    # -- effects --------------------------------------------------------------------------------------------------

    def _mutated(self, bound: _Bound, data: Object, attributes: AdmissionAttributes) -> Object:
        new = _plain(attributes.new)
        for mutation in bound.spec.get("mutations") or ():
            if mutation["patchType"] == "JSONPatch":
                new = apply_operations(new, _evaluate(plain_literals(mutation["jsonPatch"]["expression"]), data))
            else:
                applied = _evaluate(plain_literals(mutation["applyConfiguration"]["expression"]), data)
                new = merge(type_of_kind(attributes.kind), new, applied)
            new = decode_object(attributes.kind, new, WriteOptions(field_validation="Ignore"), patched=True)
            data = {**data, "object": new}
        result: Object = new
        return result

    def _check(
        self, bound: _Bound, validation: Mapping[str, Any], data: Object, attributes: AdmissionAttributes
    ) -> None:
        expression = validation["expression"]
        try:
            if _evaluate(expression, data):
                return
        except ValueError as error:
            text = f"expression '{expression}' resulted in error: {error}"
            self._fail(bound, "ValidatingAdmissionPolicy", attributes, text)
            return
        text = validation.get("message") or f"failed expression: {expression.strip()}"
        if validation.get("messageExpression"):
            try:
                text = str(_evaluate(validation["messageExpression"], data)) or text
            except ValueError:
                pass  # as if there were none
        actions = bound.binding["spec"].get("validationActions") or ()
        described = bound.describe("ValidatingAdmissionPolicy")
        if "Warn" in actions:
            warning = f"Validation failed for {described}: {text}"
            attributes.options.warnings.append(warning)
        if "Deny" in actions:
            raise _denied(attributes, f"{described} denied request: {text}", validation.get("reason") or "Invalid")

    def _fail(self, bound: _Bound, kind: str, attributes: AdmissionAttributes, text: str) -> None:
        """Deny the write, or ignore the failure, as the failure policy says."""
        described = bound.describe(kind)
        if not bound.ignores_failures:
            raise _denied(attributes, f"{described} denied request: {text}", "Invalid")
        _log.warning("Ignoring that %s failed: %s", described, text)


def _plain(value: Any) -> Any:
    """Return the value without parts that are encoded already."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _evaluate(expression: str, data: Mapping[str, Any]) -> Any:
    return compile_expression(expression, _VARIABLES).evaluate(data)


def _matches(
    constraints: Mapping[str, Any], attributes: AdmissionAttributes, namespace: Mapping[str, Any] | None
) -> bool:
    def selects(rules: str, *, by_default: bool) -> bool:
        if not constraints.get(rules):
            return by_default
        return (
            select(Policy.of(constraints, rules, attributes.name), attributes, equivalents=(), namespace=namespace)
            is not None
        )

    return selects("resourceRules", by_default=True) and not selects("excludeResourceRules", by_default=False)


def _denied(attributes: AdmissionAttributes, text: str, reason: str) -> ApiError:
    error = forbidden(attributes.kind, attributes.name, text, causes=[{"message": text}])
    return ApiError.of(error.message, status=_CODES.get(reason, 422), reason=reason, details=error.details)
