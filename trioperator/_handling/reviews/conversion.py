"""Conversion: handlers that convert custom objects from one version to another, chains of them, and results. Pure."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from trioperator._handling.arguments.cause import INDEX_KWARGS, ObjectCause
from trioperator._handling.handlers.handler import ErrorsMode, ResourceHandler
from trioperator._handling.handlers.typed import encode_object
from trioperator._handling.reviews.admission import Headers, SSLPeer
from trioperator._model.custom_kind import find_kind, get_kind
from trioperator._model.jsontypes import JsonObject, check_numbers, encode_json
from trioperator._model.patch import Patch, apply_merge, is_mapping

CONVERSION_KWARGS = INDEX_KWARGS | {"from_", "headers", "sslpeer", "to"}

# The only metadata that conversions may change (a rule of Kubernetes).
_CONVERTED: Final = ("labels", "annotations")
# Metadata of typed objects that is encoded without a loss.
_COMPLETE: Final = ("name", "namespace", "uid", *_CONVERTED)


class ConversionHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that converts objects of one version to another one."""

    title: ClassVar[str] = "Conversion"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.PERMANENT
    is_routine: ClassVar[bool] = True

    from_version: str
    to_version: str


class ConversionCause(ObjectCause, kw_only=True, eq=False):
    """One step of the conversion of one object, between two versions."""

    from_: str
    to: str
    headers: Headers
    sslpeer: SSLPeer

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = super()._make_kwargs()
        kwargs.update(from_=self.from_, to=self.to, headers=self.headers, sslpeer=self.sslpeer)
        return kwargs


def find_chain(handlers: Iterable[ConversionHandler], from_: str, to: str) -> tuple[ConversionHandler, ...] | None:
    """Return the shortest chain of handlers between two versions, the one declared first of several; None without any.

    It is empty if the versions are the same.
    """
    steps: dict[str, list[ConversionHandler]] = {}
    for handler in handlers:
        steps.setdefault(handler.from_version, []).append(handler)
    chains: dict[str, tuple[ConversionHandler, ...]] = {from_: ()}
    reached = collections.deque([from_])
    while reached and to not in chains:
        version = reached.popleft()
        for handler in steps.get(version, ()):
            if handler.to_version not in chains:
                chains[handler.to_version] = (*chains[version], handler)
                reached.append(handler.to_version)
    return chains.get(to)


def build_converted(
    before: Mapping[str, Any], result: Any, patch: Patch, api_version: str
) -> tuple[JsonObject, list[str]]:
    """Return what a handler has made of an object, and the fields of the metadata whose changes are dropped.

    The object is the *result*, or the one *before* if that is None, with the patch applied. Of its metadata, only
    labels and annotations may change. Raises TypeError if it is not a JSON object, and what functions of the patch do.
    """
    if find_kind(type(result)) is not None:
        result = _encode_result(result, api_version)
    if not (result is None or is_mapping(result)):
        raise TypeError(f"it is of the type {type(result).__qualname__}: return the converted object, or None")
    metadata = before["metadata"]
    after = dict(before if result is None else result)
    returned = after.get("metadata")
    if returned is not None and not is_mapping(returned):
        raise TypeError(f"its metadata are of the type {type(returned).__qualname__}")
    after["metadata"] = {**metadata, **(returned or {})}
    merged = apply_merge(after, patch)
    encoded = msgspec.json.encode(merged, enc_hook=_encode_view)
    check_numbers(merged, encoded)
    after = msgspec.json.decode(encoded)
    for fn in patch.fns:
        fn(after)
    if patch.fns:
        encode_json(after)  # fails for what cannot be sent
    changed = after.pop("metadata", None) or {}
    kept = {key: value for key, value in metadata.items() if key not in _CONVERTED}
    dropped = [key for key, value in changed.items() if key not in _CONVERTED and value != kept.get(key)]
    kept.update({key: _check_strings(key, changed[key]) for key in _CONVERTED if changed.get(key)})
    rest = {key: value for key, value in after.items() if key not in ("apiVersion", "kind")}
    return {"apiVersion": api_version, "kind": before["kind"], "metadata": kept, **rest}, dropped


def _encode_result(result: object, api_version: str) -> JsonObject:
    """Return a typed object that a handler has returned. Metadata that classes may not have in full are left out."""
    info = get_kind(type(result))
    if info.api_version != api_version:
        raise TypeError(f"it is a {type(result).__qualname__}, which is {info.api_version}: return {api_version}")
    found = encode_object(result)
    metadata = found.pop("metadata", None) or {}
    return {**found, "metadata": {key: metadata[key] for key in _COMPLETE if key in metadata}}


def _encode_view(value: Any) -> Any:
    """Return what a mapping such as a view of the object contains; called for what is not JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"an object of the type {type(value).__qualname__} is not JSON-serializable")


def _check_strings(key: str, value: Any) -> Mapping[str, str]:
    if not is_mapping(value) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError(f"the values of its {key} are not all strings")
    return value
