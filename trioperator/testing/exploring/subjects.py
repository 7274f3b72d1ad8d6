"""Subjects of exploration: the kinds that an operator handles, with their schemas and examples of their objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.discovery import discover
from trioperator._model.resource import EVERYTHING, Resource
from trioperator.apiserver import Cluster
from trioperator.crds.definitions import collect_definitions
from trioperator.errors import ApiError, ConfigError
from trioperator.settings import OperatorSettings
from trioperator.testing.exploring.worlds import StatusRule

#: The fields of an object besides its kind, its metadata and its status, such as ``{"spec": {...}}``.
State: TypeAlias = Mapping[str, Any]

_NAME: Final = "example"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_NO_STATE: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Surroundings of the operator: definitions of kinds, other objects, and who takes care of them."""

    definitions: Sequence[Mapping[str, Any]] = ()
    objects: Sequence[Mapping[str, Any]] = ()
    statuses: Sequence[StatusRule] = ()
    controllers: Sequence[str] = ("all",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A kind whose objects are explored. *schema* describes an object, without what all objects have."""

    resource: str
    api_version: str
    kind: str
    schema: Mapping[str, Any]
    examples: Sequence[State] = ()
    owned: frozenset[str] = frozenset()  # kinds of children that the operator keeps as they are

    def make_object(self, state: State) -> dict[str, Any]:
        """Return the object in a state."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": _NAME}, **state}

    def check(self) -> None:
        """Raise ConfigError if neither the schema nor an example says which states there are."""
        fields = self.schema.get("properties", {})
        if not self.examples and not any(_has_fields(value) for value in fields.values()):
            raise ConfigError(
                f"The schema of {self.resource} has no fields, so its states are not known. Pass the manifests of one"
                f" or more objects of the kind {self.kind}, which are varied: --from FILE. To leave it out, name the"
                " kinds to explore: --kind KIND."
            )

    @property
    def name(self) -> str:
        """The name of the object that is played."""
        return _NAME


async def find_subjects(
    registry: OperatorRegistry, world: World, examples: Iterable[Mapping[str, Any]] = (), *, kinds: Collection[str] = ()
) -> tuple[World, Sequence[Subject]]:
    """Return the kinds that an operator handles and that have a schema or examples, with the whole world.

    The world gets the definitions of classes, and the *examples* of other kinds. *kinds* are the only kinds to explore.
    Raises ConfigError if there are none, or if the API server rejects anything.
    """
    given = {definition["metadata"]["name"] for definition in world.definitions}
    declared = [each for each in collect_definitions(registry) if each["metadata"]["name"] not in given]
    definitions = [*world.definitions, *declared]
    resources = await _discover(definitions)
    handled = [resource for resource in resources if _is_handled(resource, registry)]
    shown = list(examples)
    custom = {definition["metadata"]["name"]: definition for definition in definitions}
    subjects = []
    for resource in handled:
        own = [obj for obj in shown if obj["kind"] == resource.kind and _group(obj["apiVersion"]) == resource.group]
        name = f"{resource.plural}.{resource.group}".rstrip(".")
        wanted = not kinds or any(kind == name or resource.has_name(kind) for kind in kinds)
        if not (wanted and (own or name in custom)):
            continue
        schema = _find_schema(custom[name], resource.version) if name in custom else {}
        owned = _find_owned(registry, resource, resources)
        subjects.append(dataclasses.replace(_make_subject(name, resource, schema, own), owned=owned))
        shown = [obj for obj in shown if obj not in own]
    if not subjects:
        raise ConfigError(_explain(handled, kinds))
    return dataclasses.replace(world, definitions=definitions, objects=[*world.objects, *shown]), subjects


def _make_subject(
    name: str, resource: Resource, schema: Mapping[str, Any], examples: Sequence[Mapping[str, Any]]
) -> Subject:
    states = [{key: value for key, value in obj.items() if key not in _NO_STATE} for obj in examples]
    fields = {
        key: value
        for key, value in schema.get("properties", {}).items()
        if key not in _NO_STATE and (key != "spec" or _has_fields(value) or not states)
    }
    # Nobody leaves out the spec, though few schemas require it.
    required = [key for key in fields if key == "spec" or key in schema.get("required", ())]
    own = {"type": "object", "properties": fields, "required": required}
    return Subject(
        resource=name,
        api_version=resource.api_version,
        kind=resource.kind or "",
        schema=own,
        examples=states,
    )


def _has_fields(schema: Mapping[str, Any]) -> bool:
    """Return whether the values of a schema can differ in anything that the schema names."""
    if schema.get("type") != "object":
        return True
    return bool(schema.get("properties") or schema.get("additionalProperties"))


def _find_schema(definition: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    for each in definition["spec"]["versions"]:
        if each["name"] == version:
            schema: Mapping[str, Any] = each.get("schema", {}).get("openAPIV3Schema", {})
            return schema
    return {}


def _is_handled(resource: Resource, registry: OperatorRegistry) -> bool:
    return any(
        handler.selector.any_name is not EVERYTHING and handler.selector.matches(resource)
        for handler in registry.resource_handlers()
    )


def _find_owned(registry: OperatorRegistry, resource: Resource, resources: Iterable[Resource]) -> frozenset[str]:
    """Return the kinds of the children that reconcile handlers of a kind own."""
    handlers = [each for each in registry if isinstance(each, ReconcileHandler) and each.selector.matches(resource)]
    owned = [own.selector for handler in handlers for own in handler.owns]
    return frozenset(each.kind for each in resources if each.kind and any(own.matches(each) for own in owned))


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


async def _discover(definitions: Iterable[Mapping[str, Any]]) -> Collection[Resource]:
    """Return all kinds, each in the version that is preferred. Raises ConfigError for invalid definitions."""
    cluster = Cluster()
    for definition in definitions:
        try:
            await cluster.apply(definition)
        except ApiError as error:
            name = definition.get("metadata", {}).get("name")
            raise ConfigError(f"The API server rejects the definition {name}: {error.message}") from error
    info = ConnectionInfo(server="http://cluster")
    async with open_client(lambda: info, settings=OperatorSettings(), transport=cluster.transport()) as client:
        return [resource for resource in (await discover(client)).resources if resource.preferred]


def _explain(handled: Collection[Resource], kinds: Collection[str]) -> str:
    """Return why there is nothing to explore."""
    names = sorted({f"{resource.plural}.{resource.group}".rstrip(".") for resource in handled})
    if kinds:
        return (
            f"The operator handles no such kind as {', '.join(kinds)}, or it is not defined: pass its CRD, --crds FILE."
        )
    if not names:
        return "The operator handles no kind that is known: pass the definitions of its kinds, --crds FILE."
    return (
        f"Only custom kinds and kinds with examples are explored, and the operator handles {', '.join(names)}. Pass the"
        " definitions of custom kinds, --crds FILE, or manifests of objects, --from FILE."
    )
