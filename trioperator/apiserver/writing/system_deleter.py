"""Deletions by the cluster itself, of garbage and of what is in namespaces that end: webhooks are asked here, too.

Where no webhook is concerned, they are done at once. Else the webhooks are asked when everything else that follows from
a write is settled; what they refuse stays, and is tried again with later writes, after delays that grow.
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

__all__ = ["SystemDeleter"]

_log: Final = logging.getLogger(__name__)
_FIRST_DELAY: Final = 1.0  # seconds
_LAST_DELAY: Final = 60.0


@dataclasses.dataclass(slots=True)
class _Deletion:
    """One deletion that webhooks have to agree to."""

    kind: Kind
    place: tuple[str, str]
    options: DeleteOptions
    due: float = 0.0
    delay: float = _FIRST_DELAY


class SystemDeleter:
    """The deletions that nobody has asked for; *follow* does what follows from changes, without waiting."""

    def __init__(
        self, state: State, webhooks: AdmissionWebhooks, deleter: Deleter, *, follow: Callable[[], None]
    ) -> None:
        self._state = state
        self._webhooks = webhooks
        self._deleter = deleter
        self._follow = follow
        self._waiting: dict[str, _Deletion] = {}  # by uid
        self._is_asking = False

    def delete(self, kind: Kind, stored: Stored, options: DeleteOptions) -> None:
        """Delete the object now, or when the webhooks that are concerned have agreed."""
        if stored.uid in self._waiting:
            return
        namespace, _, name = stored.key.rpartition("/")
        attributes = dataclasses.replace(Deleter.admission_attributes(kind, (namespace, name), options), old=stored.obj)
        if not self._webhooks.concern(attributes):
            self._deleter.mark_or_remove(kind, stored, options)
            return
        options = dataclasses.replace(options, uid=stored.uid, sent=_sent(options, stored.uid))
        self._waiting[stored.uid] = _Deletion(kind, (namespace, name), options)

    async def settle(self) -> None:
        """Do everything that follows from the changes so far, and ask the webhooks that have to be asked."""
        self._follow()
        if self._is_asking:
            return  # by a write of before, or by a webhook: that one goes on with what has come
        self._is_asking = True
        try:
            while (uid := self._next()) is not None:
                await self._ask(uid)
        finally:
            self._is_asking = False

    def _next(self) -> str | None:
        now = trio_seconds()
        return next((uid for uid, deletion in self._waiting.items() if deletion.due <= now), None)

    async def _ask(self, uid: str) -> None:
        deletion = self._waiting[uid]
        namespace, name = deletion.place
        try:
            await self._deleter.delete(deletion.kind, namespace, name, deletion.options)
        except ApiError as error:
            if error.status not in {404, 409}:  # else it is another object now, or none
                _log.warning("%s/%s stays: %s", deletion.kind.plural, name, error.message)
                deletion.due = trio_seconds() + deletion.delay
                deletion.delay = min(deletion.delay * 2, _LAST_DELAY)
                return
        del self._waiting[uid]


def _sent(options: DeleteOptions, uid: str) -> dict[str, object]:
    return {"preconditions": {"uid": uid}, "propagationPolicy": options.policy}
