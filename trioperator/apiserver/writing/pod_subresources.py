"""Objects that are created as subresources of Pods, and are not stored: bindings, and evictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..bodies.decoding import WriteOptions, decode_object
from ..model.errors import bad_request
from ..model.kinds import Kind
from ..webhooks.matching import AdmissionAttributes
from .writer import Admission

Object = dict[str, Any]

#: The response to a creation.
CREATED: Final[Object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def admit_subresource(
    sent: Any,
    shape: Kind,
    *,
    pods: Kind,
    place: tuple[str, str],
    options: WriteOptions,
    admission: Admission,
    check: Callable[[Object], None] | None = None,
) -> Object:
    """Return what is created at the Pod at *place*, of the kind *shape*, after *check* and admission.

    Raises 400 if it has another name, what *check* raises, and ApiError if a webhook denies it.
    """
    created = decode_object(shape, sent, options)
    namespace, name = place
    if created["metadata"].get("name", "") != name:
        raise bad_request(f"name in URL does not match name in {shape.kind} object")
    if check is not None:
        check(created)
    attributes = AdmissionAttributes(
        operation="CREATE",
        kind=pods,
        namespace=namespace,
        name=name,
        subresource=shape.singular,
        new=created,
        options=options,
    )
    await admission.mutate(attributes)
    await admission.validate(attributes)
    return created
