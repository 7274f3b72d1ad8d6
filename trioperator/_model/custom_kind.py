"""Kinds that classes declare: what :func:`trioperator.crds.kind` keeps of a class. Pure."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

_ATTRIBUTE: Final = "__trioperator_kind__"


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``: its title, and the JSONPath of its value, such as ``.spec.size``.

    The type is the field's, unless it is passed; columns with a ``priority`` above 0 are shown by ``-o wide``.
    """

    name: str
    path: str
    type: Literal["integer", "number", "string", "boolean", "date"] | None = None
    format: str | None = None
    description: str | None = None
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """The scale subresource, for ``kubectl scale`` and autoscalers: the JSONPaths of its fields."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in CEL, which is true for valid values: ``Rule(rule="self.min <= self.max", message="...")``.

    A rule with ``oldSelf`` is checked when an existing value changes.
    """

    rule: str
    message: str | None = None
    message_expression: str | None = None
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"] | None = (
        None
    )
    field_path: str | None = None
    optional_old_self: bool | None = None


class KindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a kind, as a class declares it, without its fields."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    served: bool = True
    storage: bool | None = None
    deprecated: bool | str = False
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    status_subresource: bool = True

    @property
    def key(self) -> tuple[str, str, str]:
        """The group, the plural and the version."""
        return self.group, self.plural, self.version

    @property
    def api_version(self) -> str:
        """The API version, as in manifests."""
        return f"{self.group}/{self.version}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.version}.{self.group}"


def find_kind(cls: object) -> KindInfo | None:
    """Return what a class declares as a kind; None for anything else, and for classes that are derived from a kind."""
    found: Any = vars(cls).get(_ATTRIBUTE) if isinstance(cls, type) else None
    return found if isinstance(found, KindInfo) else None


def get_kind(cls: type) -> KindInfo:
    """Return what a class declares as a kind. Raises TypeError if it declares none."""
    found = find_kind(cls)
    if found is None:
        raise TypeError(f"The class {cls.__qualname__} declares no kind: decorate it with trioperator.crds.kind().")
    return found


def set_kind(cls: type, info: KindInfo) -> None:
    """Declare that a class is a kind."""
    setattr(cls, _ATTRIBUTE, info)
