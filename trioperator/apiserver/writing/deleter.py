"""Deletion: preconditions, finalizers, grace periods, propagation policies, collections.

An object with finalizers (or with a grace period) is only marked; :mod:`.writer` removes it with its last finalizer.
:mod:`.garbage_collection` and :mod:`.namespace_termination` do what follows from a deletion.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from trioperator.errors import ApiError, NotFoundError

from ..bodies.decoding import WriteOptions
from ..bodies.delete_options import POLICIES, DeleteOptions
from ..custom import definitions
from ..custom.definition_status import deleted_status
from ..model.builtin_kinds import IMMORTAL_NAMESPACES
from ..model.errors import conflict, forbidden
from ..model.kinds import Kind
from ..store.state import State
from ..store.storage import Stored
from ..webhooks.conversion import Converter
from ..webhooks.matching import AdmissionAttributes
from .writer import Admission, Written


class Deleter:
    """Deletions of one cluster. *settle* runs the follow-ups of a deletion."""

    def __init__(
        self,
        state: State,
        *,
        settle: Callable[[], Awaitable[None]],
        admission: Admission,
        converter: Converter,
    ) -> None:
        self._state = state
        self._settle = settle
        self._admission = admission
        self._converter = converter

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Written | dict[str, Any]:
        """Delete the object; return its content if it remains for now, otherwise a ``Status``."""
        uid, result = await self._delete(kind, (namespace, name), options)
        await self._settle()
        if isinstance(result, Stored):
            shown = await self._converter.show(kind, result)
            return Written(shown.obj, shown.raw)
        if isinstance(result, Written):
            return result
        details = {
            "name": name,
            **({"group": kind.group} if kind.group else {}),
            "kind": kind.plural,
            "uid": uid,
        }
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def delete_collection(self, kind: Kind, found: Sequence[Stored], options: DeleteOptions) -> None:
        """Delete the objects one by one, even if they have changed meanwhile. Stops at the first error."""
        try:
            for stored in found:
                namespace, _, name = stored.key.rpartition("/")
                with contextlib.suppress(NotFoundError):
                    await self._delete(kind, (namespace, name), options, is_collected=True)
        finally:
            await self._settle()

    async def _delete(
        self, kind: Kind, place: tuple[str, str], options: DeleteOptions, *, is_collected: bool = False
    ) -> tuple[str, Stored | Written | None]:
        """Mark or remove the object after admission; return its uid, and what remains of it."""
        namespace, name = place
        table = self._state.table(kind)
        attributes = self.admission_attributes(kind, place, options)
        while True:
            stored = self._state.require(kind, namespace, name)
            if kind.resource == ("", "namespaces") and name in IMMORTAL_NAMESPACES:
                raise forbidden(kind, name, "this namespace may not be deleted")
            _check_preconditions(kind, stored, options)
            old = await self._converter.show(kind, stored)
            shown = dataclasses.replace(attributes, name="" if is_collected else name, old=old.obj)
            await self._admission.mutate(shown)
            await self._admission.validate(shown)
            if table.objects.get(stored.key) is stored:
                return stored.uid, self.mark_or_remove(kind, stored, options)

    async def evict(
        self, kind: Kind, stored: Stored, options: DeleteOptions, *, mark: Callable[[], Awaitable[Stored]]
    ) -> None:
        """Delete a Pod that may be evicted, without a deletion's webhooks; *mark* is called before."""
        _check_preconditions(kind, stored, options)
        if not options.dry_run:
            stored = await mark()
        self.mark_or_remove(kind, stored, options)
        await self._settle()

    @staticmethod
    def admission_attributes(kind: Kind, place: tuple[str, str], options: DeleteOptions) -> AdmissionAttributes:
        """Return the attributes of a deletion for admission, without the object."""
        namespace, name = place
        is_namespace = kind.resource == ("", "namespaces")
        return AdmissionAttributes(
            operation="DELETE",
            kind=kind,
            namespace=name if is_namespace else namespace,
            name=name,
            options=WriteOptions(
                dry_run=options.dry_run,
                user=options.user,
                sent=options.sent,
                warnings=options.warnings,
                annotations=options.annotations,
            ),
        )

    def mark_or_remove(self, kind: Kind, stored: Stored, options: DeleteOptions) -> Stored | Written | None:
        """Mark the object for deletion, or remove it; return what remains of it, if anything does."""
        table = self._state.table(kind)
        obj = stored.obj
        meta = obj["metadata"]
        # By default the Pods of a Job are orphaned, for compatibility with the earliest versions of the API.
        policy = options.policy or ("Orphan" if kind.resource == ("batch", "jobs") else "")
        finalizers = _finalizers(meta.get("finalizers") or (), policy)
        grace = _grace(kind, obj, options)
        if kind.group == "apiextensions.k8s.io" and definitions.CLEANUP_FINALIZER not in finalizers:
            finalizers = [*finalizers, definitions.CLEANUP_FINALIZER]
        remains = bool(finalizers) or grace > 0 or kind.resource == ("", "namespaces")
        if not remains:
            if not options.dry_run:
                self._state.store.remove(table, stored.key)
            return self._removed(kind, stored) if kind.shows_deleted else None
        marked = self._marked(kind, obj, finalizers, grace)
        if marked == obj:
            return stored
        if options.dry_run:
            return Written(marked, msgspec.json.encode(marked))
        return self._state.store.put(table, stored.key, marked)

    def _removed(self, kind: Kind, stored: Stored) -> Written:
        """Return the removed object for the response: as it was, or (Pods) as if it had been marked before."""
        obj = self._marked(kind, stored.obj, [], 0) if kind.resource == ("", "pods") else stored.obj
        return Written(obj, msgspec.json.encode(obj))

    def _marked(self, kind: Kind, obj: dict[str, Any], finalizers: list[str], grace: int) -> dict[str, Any]:
        meta = {**obj["metadata"]}
        if finalizers:
            meta["finalizers"] = finalizers
        whole = kind.resource == ("", "namespaces") or kind.group == "apiextensions.k8s.io"
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = self._state.timestamp(plus=grace)
            if not whole:
                meta["deletionGracePeriodSeconds"] = grace
                if meta.get("generation"):
                    meta["generation"] += 1
        elif not whole and grace < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = self._state.timestamp(plus=grace)
            meta["deletionGracePeriodSeconds"] = grace
        result = {**obj, "metadata": meta}
        if kind.group == "apiextensions.k8s.io" and "deletionTimestamp" not in obj["metadata"]:
            result["status"] = deleted_status(obj.get("status") or {}, now=self._state.timestamp())
        if kind.resource == ("", "namespaces"):
            result["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return result


def _check_preconditions(kind: Kind, stored: Stored, options: DeleteOptions) -> None:
    version = stored.obj["metadata"]["resourceVersion"]
    if options.uid and options.uid != stored.uid:
        found = f"UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid})"
        raise _failed_precondition(kind, stored, f"{found}. The object might have been deleted and then recreated")
    if options.version and options.version != version:
        found = f"ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record"
        raise _failed_precondition(kind, stored, f"{found} ({version}). The object might have been modified")


def _failed_precondition(kind: Kind, stored: Stored, text: str) -> ApiError:
    """Return the error; unlike all others, it has the kind in the place of the resource."""
    return conflict(dataclasses.replace(kind, plural=kind.kind), stored.obj["metadata"]["name"], f"the {text}")


def _finalizers(current: Any, policy: str) -> list[str]:
    finalizers = list(current)
    wanted = POLICIES.get(policy)
    if policy:
        finalizers = [item for item in finalizers if item not in POLICIES.values() or item == wanted]
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    return finalizers


def _grace(kind: Kind, obj: Mapping[str, Any], options: DeleteOptions) -> int:
    """Return the grace period of a Pod on a node in seconds; 0 for everything else."""
    if kind.resource != ("", "pods"):
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Failed", "Succeeded"}:
        return 0
    grace = options.grace
    if grace is None:
        grace = int(obj["metadata"].get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30)))
    return 1 if grace < 0 else grace  # as on the real server, which corrects it
