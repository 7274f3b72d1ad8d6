"""The functions of patches, applied to the newest state of an object, and each only once.

A conditional patch either does what was meant or fails, and then the functions are applied anew. But an answer can be
lost: then it is told from the newest state whether what was meant is there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError, ServerError
from trioperator.logs import Logger
from trioperator.model.patch import json_patch
from trioperator.runtime.pending import Sent, Wish
from trioperator.runtime.requests import Requests, StaleError
from trioperator.runtime.table import Kind

__all__ = ["Functions"]

_MISSING: Final = object()

Ops = Sequence[Mapping[str, Any]]


class Functions:
    """Apply functions to one object. ``body`` is its newest state; ``sent`` is what has had no answer yet."""

    def __init__(self, requests: Requests, kind: Kind, body: Mapping[str, Any], logger: Logger) -> None:
        self.body = body
        self.sent: Sent | None = None
        self._requests = requests
        self._kind = kind
        self._logger = logger

    async def apply(self, wishes: list[Wish], sent: Sent | None) -> None:
        """Have the functions change the object, until nobody interferes; take *wishes* out when they are fulfilled.

        *sent* is what an earlier call has left without an answer. Raises what the requests raise.
        """
        self.sent = sent
        while True:
            groups = self._resume()
            if groups is None:
                wanted = self._change(wishes)
                groups = self._group(json_patch(self.body, wanted))
                self.sent = Sent(wanted, groups)
            begun = False
            try:
                for subresource, ops in groups.items():
                    if ops:
                        self.body = await self._requests.patch_conditionally(self._kind, self.body, ops, subresource)
                        begun = True
            except StaleError as stale:
                self.body = stale.body
                if not begun and not stale.may_be_ours:
                    self.sent = None
            except ApiError as error:
                if not (begun or error.repeated or isinstance(error, ServerError)):
                    self.sent = None  # it was surely not applied
                raise
            else:
                self.sent = None
                wishes.clear()
                return

    def _change(self, wishes: Sequence[Wish]) -> Mapping[str, Any]:
        """Give the object as the functions want it. Those that fail are reported, and change nothing."""
        wanted: Any = self.body
        for wish in wishes:
            for fn in wish.fns:
                changed = msgspec.json.decode(msgspec.json.encode(wanted))
                try:
                    fn(changed)
                    wanted = msgspec.json.decode(msgspec.json.encode(changed))
                except Exception as error:
                    text = "A function in the patch of %s has failed, and is dropped: %r"
                    self._logger.error(text, wish.by, error, exc_info=error)
        result: Mapping[str, Any] = wanted
        return result

    def _group(self, ops: Ops) -> dict[str | None, Ops]:
        """Part what goes to the object from what goes to its status."""
        if not self._kind.has_status:
            return {None: ops}
        in_status = [op for op in ops if op["path"].split("/")[1:2] == ["status"]]
        return {None: [op for op in ops if op not in in_status], "status": in_status}

    def _resume(self) -> dict[str | None, Ops] | None:
        """Tell what is left to be sent of what was sent before; None if nothing of that was applied."""
        if self.sent is None:
            return None
        left: dict[str | None, Ops] = {}
        for subresource, ops in self.sent.ops.items():
            left[subresource] = list(self._missing(ops)) if ops else []
        sent = sum(bool(ops) for ops in self.sent.ops.values())
        missing = sum(bool(ops) for ops in left.values())
        return left if missing < sent else None

    def _missing(self, ops: Ops) -> Iterator[Mapping[str, Any]]:
        """Say what has to be done so that the object is, where these operations change it, as it was to become."""
        assert self.sent is not None
        for path in dict.fromkeys(_touched(op["path"], self.sent.wanted) for op in ops):
            wanted, present = _resolve(self.sent.wanted, path), _resolve(self.body, path)
            if wanted == present:
                continue
            pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)
            if wanted is _MISSING:
                yield {"op": "remove", "path": pointer}
            else:
                yield {"op": "add", "path": pointer, "value": wanted}  # which replaces what is there


def _touched(pointer: str, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the field that an operation changes: down to the first list on its path, which is taken as a whole."""
    path: list[str] = []
    value: Any = wanted
    for token in pointer.split("/")[1:]:
        if not isinstance(value, Mapping):
            break
        key = token.replace("~1", "/").replace("~0", "~")
        path.append(key)
        value = value.get(key)
    return tuple(path)


def _resolve(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value
