"""Custom kinds that classes declare, and their CustomResourceDefinitions (CRDs).

::

    from typing import Annotated

    import msgspec
    import trioperator
    from trioperator import crds


    class DatabaseSpec(msgspec.Struct):
        size: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
        \"\"\"The size in GiB.\"\"\"


    @crds.kind("example.com/v1", short_names=["db"])
    class Database(msgspec.Struct):
        spec: DatabaseSpec


    @trioperator.on.create(Database)
    def create(spec: DatabaseSpec) -> None: ...

See docs/typed-kinds.md.
"""

from trioperator._handling.handlers.typed import decode, encode
from trioperator._model.custom_kind import Column, Rule, Scale
from trioperator._model.quantities import Quantity
from trioperator.crds.declaring import (
    embedded_resource,
    format_of,
    kind,
    list_map,
    list_set,
    preserve_unknown_fields,
    rule,
    rules,
)
from trioperator.crds.definitions import collect_definitions, make_definition
from trioperator.crds.metadata import Condition, ConditionList, IntOrString, ObjectMeta, OwnerRef

__all__ = [
    "Column",
    "Condition",
    "ConditionList",
    "IntOrString",
    "ObjectMeta",
    "OwnerRef",
    "Quantity",
    "Rule",
    "Scale",
    "collect_definitions",
    "decode",
    "embedded_resource",
    "encode",
    "format_of",
    "kind",
    "list_map",
    "list_set",
    "make_definition",
    "preserve_unknown_fields",
    "rule",
    "rules",
]
