"""Functions of patches, applied to the newest state of an object, and each only once.

Theory of operation
===================

Functions change an object in place, whatever it is by then. So they are applied to a copy of the newest known state,
and the difference is sent as a JSON patch that tests the version of that state: the request either does what was meant,
or nothing. Merge patches are part of the same difference, so that they need no request of their own.

A function must not be applied twice: it may append, or count. Its request may be applied although there is no response,
and that cannot be told from the version alone: it is another one, too, if somebody else has changed the object. So
``sent`` keeps what was sent, and ``wanted``, the object as it was to become, until that is known.

================================  =======================================================================
what a request meets              what is done next
================================  =======================================================================
it is applied                     The part for the next subresource is sent, or it is the end.
a conflict, and nothing was sent  Functions are applied again to the newest state: the difference is void.
before
a conflict, and a response was    The newest state is compared with ``wanted``. A part whose fields are all
lost                              there was applied. If there is no such part, nothing was: as above.
a conflict, and all but the       Functions are applied again to the newest status of the state before that
status is applied                 part (``_before``), for the status only: others may have changed it, too.
a rejection                       It is raised, and ``sent`` is dropped, unless a part is applied already.
no response, or a server error    It is raised. ``sent`` is kept with the pending patch: the next call begins
                                  by comparing.
too many conflicts in a row       A conflict is raised: the reconciler tries again with its backoff.
================================  =======================================================================

A list counts as there if it has what was added, and not what was removed: others may have changed it, too. If somebody
else makes exactly the same change meanwhile, it counts as ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._handling import guard
from trioperator._logs import Logger
from trioperator._model.jsontypes import copy_json, encode_json
from trioperator._model.lazy_object import conserve
from trioperator._model.patch import PatchFn, apply_merge, is_mapping, json_patch
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.patching.pending import Contribution, SentPatch
from trioperator._runtime.patching.requests import PatchRequests, StaleError
from trioperator.errors import ApiError, ServerError, UserCodeError

# Attempts at the same patch, and the delays between them, as in client-go's retry.DefaultBackoff.
_ATTEMPTS: Final = 5
_BACKOFF: Final = Backoff(initial=0.01, maximum=1.0, factor=5.0, jitter=0.1)

_MISSING: Final = object()

Ops = Sequence[Mapping[str, Any]]


class PatchFunctions:
    """Functions applied to one object. ``body`` is its newest state; ``sent`` is what has had no response yet."""

    def __init__(self, requests: PatchRequests, kind: Kind, body: Mapping[str, Any], logger: Logger) -> None:
        self.body = body
        self.sent: SentPatch | None = None
        self._requests = requests
        self._kind = kind
        self._logger = logger
        # The ids of functions whose failure is reported: callables need not be hashable. Contributions keep them alive.
        self._failed: set[int] = set()
        self._before: Mapping[str, Any] | None = None  # what it was, if all but the status is changed already

    def find_changed(self, contributions: Sequence[Contribution]) -> set[str | None]:
        """Return the subresources that functions change, on top of what is to be merged. None is the object itself."""
        if not all(is_mapping(item.patch.get("status", {})) for item in contributions):
            return {None, "status"}  # such a status is not meant for the subresource: let it be stored on its own
        return self._compare(self._merge(contributions), self._change(contributions))

    def reset(self, body: Mapping[str, Any]) -> None:
        """Begin again with another state, as what was sent is surely not applied."""
        self.body = body
        self.sent = None

    async def apply(
        self, contributions: list[Contribution], sent: SentPatch | None, records: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Apply contributions to the object, again after a conflict; remove those that are applied from the list.

        Changes of the status come last. The operator's own *records*, a merge patch for the object itself, go with the
        changes if these are all there, too. *sent* is what an earlier call with these contributions has left without a
        response.

        Returns the object as it was to become. Raises what the requests raise, and ConflictError after too many
        conflicts in a row: then it is for the reconciler to try again later.
        """
        self.sent = sent
        for conflicts in range(_ATTEMPTS):
            if conflicts:
                await trio.sleep(_BACKOFF.delay(conflicts))
            if conflicts == 1 and self.sent is None:
                self.sent = sent  # only the newest state tells whether that was applied
            groups = self._resume()
            begun = groups is not None
            if groups is None:
                wanted = self._change(contributions)
                if records and self._compare(self.body, wanted) == {None}:
                    wanted = apply_merge(wanted, records)
                groups = self._group(json_patch(self.body, wanted))
                self.sent = self._note(wanted, groups, len(contributions))
            assert self.sent is not None
            wanted = self.sent.wanted
            if await self._send(groups, begun=begun):
                self.sent = None
                contributions.clear()
                return wanted
        name = self.body["metadata"]["name"]
        raise ApiError.of(f"{name} was changed {_ATTEMPTS} times in a row meanwhile", status=409, reason="Conflict")

    async def _send(self, groups: Mapping[str | None, Ops], *, begun: bool) -> bool:
        """Send JSON patches, and return whether they were applied: not after a conflict.

        They are the rest of what was applied in part if they are *begun*.
        """
        try:
            for subresource, ops in groups.items():
                if ops:
                    self.body = await self._requests.patch_conditionally(self._kind, self.body, ops, subresource)
                    begun = True
                    self._note_applied(subresource)
        except StaleError as stale:
            self.body = stale.body
            if not stale.may_be_ours and (not begun or self._before is not None):
                self.sent = None
            return False
        except ApiError as error:
            if not (error.repeated or isinstance(error, ServerError)):  # it was surely not applied
                self.sent = self.sent if begun else None
            raise
        return True

    def find_sent(self, count: int) -> SentPatch | None:
        """Return what is to be known when the first *count* contributions, which are not stored yet, are sent again."""
        return self.sent if self.sent is not None or self._before is None else self._note(self.body, {}, count)

    def _note(self, wanted: Mapping[str, Any], ops: Mapping[str | None, Ops], count: int) -> SentPatch:
        before, is_partial = (self.body, False) if self._before is None else (self._before, True)
        return SentPatch(wanted, ops, count, before=before, is_partial=is_partial)

    def _note_applied(self, subresource: str | None) -> None:
        """Note that a part is applied. If others follow, functions must not be applied to that part again."""
        if subresource is None and self.sent is not None and self.sent.ops.get("status"):
            self._before = self.sent.before
            self.sent = msgspec.structs.replace(self.sent, is_partial=True)

    def _merge(self, contributions: Sequence[Contribution]) -> Mapping[str, Any]:
        """Return the object with what is to be merged, and without the changes by functions."""
        merged = self.body if self._before is None else _with_status(self._before, self.body)
        for contribution in contributions:
            merged = apply_merge(merged, contribution.patch)
        return merged

    def _change(self, contributions: Sequence[Contribution]) -> Mapping[str, Any]:
        """Return the object as the contributions want it. Functions that fail are reported, and change nothing."""
        wanted: Any = self._merge(contributions)
        for contribution in contributions:
            for fn in contribution.fns:
                try:
                    wanted = guard.call("A function in the patch of {}", contribution.by, _apply, fn, wanted)
                except UserCodeError as error:
                    if id(fn) not in self._failed:
                        self._logger.error("%s: it is dropped.", error, exc_info=error.__cause__)
                    self._failed.add(id(fn))
        result: Mapping[str, Any] = wanted if self._before is None else _with_status(self.body, wanted)
        return result

    def _compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str | None]:
        """Return the subresources in which two states of the object differ."""
        changed = [key for key in {*before, *after} if before.get(key, _MISSING) != after.get(key, _MISSING)]
        return {self._subresource_of(key) for key in changed}

    def _subresource_of(self, field: str) -> str | None:
        """Return the subresource of a top-level field: the status goes there, where it is one."""
        return "status" if field == "status" and self._kind.has_status else None

    def _group(self, ops: Ops) -> dict[str | None, Ops]:
        """Split operations by subresource."""
        groups: dict[str | None, list[Mapping[str, Any]]] = {None: [], "status": []}
        for op in ops:
            groups[self._subresource_of(op["path"].split("/")[1])].append(op)
        return {**groups}

    def _resume(self) -> dict[str | None, Ops] | None:
        """Return what is left to be sent of what was sent before; None if functions are to be applied again."""
        if self.sent is None:
            return None
        left: dict[str | None, Ops] = {}
        for subresource, ops in self.sent.ops.items():
            is_applied = subresource is None and self.sent.is_partial
            left[subresource] = list(self._missing(ops)) if ops and not is_applied else []
        sent = sum(bool(ops) for ops in self.sent.ops.values())
        missing = sum(bool(ops) for ops in left.values())
        if self.sent.is_partial or (missing < sent and left.get("status")):
            self._before = self.sent.before
        if missing >= sent or (self._before is not None and missing):
            return None
        return left

    def _missing(self, ops: Ops) -> Iterator[Mapping[str, Any]]:
        """Yield operations that make the object what it was to become, where these operations change it."""
        import jsonpointer  # for lost responses only

        assert self.sent is not None
        for path in dict.fromkeys(_touched(op["path"], self.sent.wanted) for op in ops):
            wanted, present = _resolve(self.sent.wanted, path), _resolve(self.body, path)
            if _has_changes(present, _resolve(self.sent.before, path), wanted):
                continue
            pointer = jsonpointer.JsonPointer.from_parts(path).path
            if wanted is _MISSING:
                yield {"op": "remove", "path": pointer}
            else:
                yield {"op": "add", "path": pointer, "value": wanted}  # which replaces what is there


def _touched(pointer: str, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the field that an operation changes: down to the first list on its path, which counts as a whole."""
    import jsonpointer

    path: list[str] = []
    value: Any = wanted
    for key in jsonpointer.JsonPointer(pointer).parts:
        if not isinstance(value, Mapping):
            break
        path.append(key)
        value = value.get(key)
    return tuple(path)


def _resolve(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _has_changes(present: Any, before: Any, wanted: Any) -> bool:
    """Check whether a value is as *wanted*, in place of the one *before*, but for what others may have added to it."""
    if present == wanted:
        return True
    if is_mapping(wanted) and is_mapping(present):
        former = before if is_mapping(before) else {}
        is_kept = (_has_changes(present.get(key, _MISSING), former.get(key, _MISSING), wanted[key]) for key in wanted)
        return all(is_kept) and not any(key in present for key in former if key not in wanted)
    if not (isinstance(present, list | tuple) and isinstance(wanted, list | tuple)):
        return False
    has, had, wants = map(_count, (present, before if isinstance(before, list | tuple) else (), wanted))
    changed = [item for item in {*had, *wants} if had[item] != wants[item]]
    is_there = (has[item] >= wants[item] if wants[item] > had[item] else has[item] <= wants[item] for item in changed)
    return bool(changed) and all(is_there)


def _count(items: Sequence[Any]) -> Counter[bytes]:
    return Counter(msgspec.json.encode(item, order="deterministic") for item in items)


def _with_status(body: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object with the status of another state of it."""
    rest = {key: value for key, value in body.items() if key != "status"}
    return conserve({**rest, "status": other["status"]} if "status" in other else rest, like=body)


def _apply(fn: PatchFn, body: Mapping[str, Any]) -> Any:
    changed = copy_json(body)
    fn(changed)
    return msgspec.json.decode(encode_json(changed))
