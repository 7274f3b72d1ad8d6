"""Objects without their operator: remove the finalizers and the state that it has left on them.

Nothing of a running operator is used, nor are its handlers: it may be down, or uninstalled for a year. The operators
written with Kopf leave the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from trioperator.errors import ApiError, ConfigError, ConflictError, ExpiredError, NotFoundError

if TYPE_CHECKING:
    from trioperator._model.resource import Resource
    from trioperator.client import Client

#: The prefixes of the finalizers and annotations of operators by default, and of Kopf's.
DEFAULT_PREFIXES: Final = ("trioperator.dev", "kopf.zalando.org", "kopf.dev")
# Annotations that people set, by their names in any of the domains: they are no traces of an operator.
_BY_PEOPLE: Final = frozenset({"paused", "reconcile-requested-at"})
# Fields of the status in which operators keep their state by default, and Kopf's.
_STATUS_FIELDS: Final = ("trioperator", "kopf")
# Domains whose finalizers protect what others depend on, such as the volumes of running pods.
_RESERVED: Final = ("kubernetes.io", "k8s.io")
# Attempts at an object that others are changing meanwhile.
_ATTEMPTS: Final = 5
# Seconds in which an operator that still runs adds its finalizers again; nothing says that there is none.
_REACTION: Final = 2.0


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of operators on objects: finalizers and annotations by their prefixes, and finalizers by their names.

    With *state*, the annotations and the fields of the status are among them: the operator that comes back then takes
    each object for a new one. Raises ConfigError for prefixes that are Kubernetes' own.
    """

    prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    finalizers: frozenset[str] = frozenset()
    state: bool = False

    def __post_init__(self) -> None:
        for prefix in self.prefixes:
            if any(f".{prefix}".endswith(f".{reserved}") for reserved in _RESERVED):
                raise ConfigError(
                    f"The prefix {prefix!r} is Kubernetes' own: its finalizers protect objects that are in use."
                    " Name single finalizers of an operator with --finalizer."
                )

    def list_finalizers(self, body: Mapping[str, Any]) -> list[str]:
        """Return the finalizers of an object that the operators have added."""
        present = (body.get("metadata") or {}).get("finalizers") or ()
        return [name for name in present if name in self.finalizers or self._has_prefix(name)]

    def list_annotations(self, body: Mapping[str, Any]) -> list[str]:
        """Return the annotations of an object that are to be removed."""
        present = (body.get("metadata") or {}).get("annotations") or {}
        own = [key for key in present if self.state and self._has_prefix(key)]
        return [key for key in own if key.partition("/")[2] not in _BY_PEOPLE]

    def list_status_fields(self, body: Mapping[str, Any]) -> list[str]:
        """Return the fields of an object's status that are to be removed."""
        status = body.get("status")
        return [name for name in _STATUS_FIELDS if self.state and isinstance(status, Mapping) and name in status]

    def build_patch(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the merge patch of this version of an object that removes all but its status; None for nothing.

        Others' finalizers stay. As a merge patch replaces the whole list, it is for this version only.
        """
        finalizers, annotations = self.list_finalizers(body), self.list_annotations(body)
        if not (finalizers or annotations):
            return None
        metadata: dict[str, Any] = {"resourceVersion": body["metadata"]["resourceVersion"]}
        if finalizers:
            metadata["finalizers"] = [name for name in body["metadata"]["finalizers"] if name not in finalizers]
        if annotations:
            metadata["annotations"] = dict.fromkeys(annotations)
        return {"metadata": metadata}

    def _has_prefix(self, name: str) -> bool:
        return name.partition("/")[0] in self.prefixes and "/" in name


class Place(msgspec.Struct, frozen=True):
    """Where objects are released: in one namespace, by default the connection's, or in all; all or some by name."""

    namespace: str | None = None
    all_namespaces: bool = False
    names: tuple[str, ...] = ()


class ReleaseSummary(msgspec.Struct):
    """Numbers of objects: *seen*, *released* or to be released, *failed*, and those that have a finalizer *again*.

    Those that cannot be read have failed, too: what they have on them is not known.
    """

    seen: int = 0
    released: int = 0
    failed: int = 0
    again: int = 0


class Releaser(msgspec.Struct, frozen=True):
    """Removes the *traces* of operators from objects; *report* is called with a line for each object that has any."""

    client: Client
    traces: Traces
    report: Callable[[str], None]
    dry_run: bool = False

    async def release(self, kind: Resource | str, place: Place) -> ReleaseSummary:
        """Release the objects of a kind one by one, and return how many there were.

        Objects that cannot be changed are reported and passed over. At the end, the objects are listed again: an
        operator that still runs has added its finalizers again by then.

        Raises ApiError or ConnectionLostError if the objects cannot be listed, NotFoundError if one of the names does
        not exist.
        """
        summary = ReleaseSummary()
        seen: set[str] = set()
        released: set[str] = set()
        async for body in _iterate(self.client, kind, place, summary):
            seen.add(_identify(body))
            removed = self._describe(body)
            if not removed:
                continue
            try:
                if not self.dry_run:
                    await self._release(body)
            except ApiError as error:
                summary.failed += 1
                self.report(f"{_name(body)}: not released: {error}")
            else:
                released.add(_identify(body))
                self.report(f"{_name(body)}: {', '.join(removed)}")
        summary.seen, summary.released = len(seen), len(released)
        if released and not self.dry_run:
            await trio.sleep(_REACTION)
            everywhere = Place(place.namespace, place.all_namespaces)
            async for body in _iterate(self.client, kind, everywhere):
                summary.again += _identify(body) in released and bool(self.traces.list_finalizers(body))
        return summary

    async def _release(self, body: dict[str, Any]) -> None:
        """Remove the traces from one object, in whatever version it is by then."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                body = await self._remove_status(body)  # first: without finalizers, the object may be gone
                patch = self.traces.build_patch(body)
                if patch is not None:
                    await self.client.patch(body, merge=patch)
            except NotFoundError:
                return  # somebody else has let it go
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return
            try:
                body = await self.client.get(body)
            except NotFoundError:
                return

    async def _remove_status(self, body: dict[str, Any]) -> dict[str, Any]:
        """Remove fields from the status, which may be a subresource or not. Returns the object as it is then."""
        fields = self.traces.list_status_fields(body)
        if not fields:
            return body
        identity = {name: value for name, value in body["metadata"].items() if name == "uid"}
        patch = {"metadata": identity, "status": dict.fromkeys(fields)}
        try:
            return await self.client.patch(body, merge=patch, subresource="status")
        except NotFoundError:
            return await self.client.patch(body, merge=patch)

    def _describe(self, body: Mapping[str, Any]) -> list[str]:
        annotations = self.traces.list_annotations(body)
        counted: Iterable[str] = [f"{len(annotations)} annotations"] if annotations else []
        fields = [f"status.{name}" for name in self.traces.list_status_fields(body)]
        return [*self.traces.list_finalizers(body), *counted, *fields]


async def _iterate(
    client: Client, kind: Resource | str, place: Place, summary: ReleaseSummary | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects. If the server forgets the list meanwhile, begin it again: what is done stays done.

    At the end, those that cannot be read are added to a *summary*.
    """
    if place.names:
        for name in place.names:
            yield await client.get(kind, name, namespace=place.namespace)
        return
    while True:
        pages = client.iterate(kind, namespace=place.namespace, all_namespaces=place.all_namespaces)
        try:
            async for body in pages:
                yield body
        except ExpiredError:
            continue
        if summary is not None:
            summary.failed += pages.left_out
        return


def _identify(body: Mapping[str, Any]) -> str:
    return body["metadata"].get("uid") or _name(body)


def _name(body: Mapping[str, Any]) -> str:
    return "/".join(filter(None, (body["metadata"].get("namespace"), body["metadata"]["name"])))
