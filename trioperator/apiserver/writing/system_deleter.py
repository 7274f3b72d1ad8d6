"""Deletions by the control plane, of garbage and of the content of namespaces, with admission webhooks.

Where no webhook matches, objects are deleted at once. Otherwise the webhooks are called after all other follow-ups of a
write; a rejected deletion is retried with later writes, with backoff.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Final

from trioperator.errors import ApiError

from ..bodies.delete_options import DeleteOptions
from ..model.kinds import Kind
from ..store.state import State, trio_seconds
from ..store.storage import Stored
from ..webhooks.admission import AdmissionWebhooks
from .deleter import Deleter

_log: Final = logging.getLogger(__name__)
_MIN_BACKOFF: Final = 1.0  # seconds
_MAX_BACKOFF: Final = 60.0


@dataclasses.dataclass(slots=True)
class _Deletion:
    """One deletion that waits for admission."""

    kind: Kind
    place: tuple[str, str]
    options: DeleteOptions
    due: float = 0.0
    backoff: float = _MIN_BACKOFF


class SystemDeleter:
    """Deletions that no client has requested; *follow* runs the follow-ups of changes."""

    def __init__(
        self, state: State, webhooks: AdmissionWebhooks, deleter: Deleter, *, follow: Callable[[], None]
    ) -> None:
        self._state = state
        self._webhooks = webhooks
        self._deleter = deleter
        self._follow = follow
        self._pending: dict[str, _Deletion] = {}  # by uid
        self._is_running = False

    def delete(self, kind: Kind, stored: Stored, options: DeleteOptions) -> None:
        """Delete the object now, or once the matching webhooks allow it."""
        if stored.uid in self._pending:
            return
        namespace, _, name = stored.key.rpartition("/")
        attributes = dataclasses.replace(Deleter.admission_attributes(kind, (namespace, name), options), old=stored.obj)
        if not self._webhooks.any_match(attributes):
            self._deleter.mark_or_remove(kind, stored, options)
            return
        options = dataclasses.replace(options, uid=stored.uid, sent=_sent(options, stored.uid))
        self._pending[stored.uid] = _Deletion(kind, (namespace, name), options)

    async def settle(self) -> None:
        """Run the follow-ups of all changes so far, then the pending deletions."""
        self._follow()
        if self._is_running:
            return  # for an earlier write, which will also run what is pending now
        self._is_running = True
        try:
            while (uid := self._next()) is not None:
                await self._try(uid)
        finally:
            self._is_running = False

    def _next(self) -> str | None:
        now = trio_seconds()
        return next((uid for uid, deletion in self._pending.items() if deletion.due <= now), None)

    async def _try(self, uid: str) -> None:
        deletion = self._pending[uid]
        namespace, name = deletion.place
        try:
            await self._deleter.delete(deletion.kind, namespace, name, deletion.options)
        except ApiError as error:
            if error.status not in {404, 409}:  # otherwise it is gone, or is another object
                _log.warning("Cannot delete %s/%s, retrying: %s", deletion.kind.plural, name, error.message)
                deletion.due = trio_seconds() + deletion.backoff
                deletion.backoff = min(deletion.backoff * 2, _MAX_BACKOFF)
                return
        del self._pending[uid]


def _sent(options: DeleteOptions, uid: str) -> dict[str, object]:
    return {"preconditions": {"uid": uid}, "propagationPolicy": options.policy}
