"""Webhooks of other versions of an operator, in a rolling update that renames handlers.

While the old and the new replicas serve behind one Service, reviews for the ids of either come to both. The webhooks of
the other version are left in the configuration, and a review for one of them is answered by all own handlers of its
type, as one without an id is: what this version denies is denied whatever the webhook is called.

Fields of older versions, which are there before, are dropped after some minutes, each once: who still needs them writes
them again. Fields of newer versions stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import trio

from trioperator._handling.reviews.admission import WebhookType
from trioperator._handling.reviews.webhook_configuration import find_segment
from trioperator._model.jsontypes import JsonObject

# Seconds for which webhooks of older versions are kept: longer than it takes to replace the pods.
_OVERLAP: Final = 600.0


class OtherVersion(NamedTuple):
    """A webhook of another version. This version need not know all that a newer one reviews."""

    type: WebhookType
    is_newer: bool


class OtherVersions:
    """The webhooks of other versions in one configuration, by their ids; ``hooks`` are those as they are stored."""

    def __init__(self) -> None:
        self.hooks: dict[str, JsonObject] = {}
        self._since: dict[str, float] = {}
        self._older: set[str] | None = None

    def keep(self, wanted: list[JsonObject], stored: list[JsonObject], address: Mapping[str, Any]) -> list[JsonObject]:
        """Return the stored webhooks of other versions at the address that are to stay."""
        own = {hook["name"] for hook in wanted}
        others = {segment: hook for hook in stored if (segment := find_segment(hook, address)) is not None}
        others = {segment: hook for segment, hook in others.items() if hook.get("name") not in own}
        if self._older is None:
            self._older = set(others)
        now = trio.current_time()
        self._since = {segment: self._since.get(segment, now) for segment in others}
        self.hooks = {segment: hook for segment, hook in others.items() if now < self._find_end(segment)}
        return list(self.hooks.values())

    def note_dropped(self) -> None:
        """Note that those that were not to be kept are gone: what comes back is needed by replicas at work."""
        dropped = self._since.keys() - self.hooks
        self._since = {segment: since for segment, since in self._since.items() if segment not in dropped}
        self._older = (self._older or set()) - dropped

    def find(self, segment: str) -> bool | None:
        """Return whether the webhook of another version with this id is of a newer one; None if there is none."""
        return None if segment not in self.hooks else segment not in (self._older or ())

    @property
    def has_newer(self) -> bool:
        """Whether there are webhooks of newer versions."""
        return not self.hooks.keys() <= (self._older or set())

    def find_expiry(self) -> float:
        """Return when the next webhook is dropped, which may be never."""
        return min(map(self._find_end, self._since), default=float("inf"))

    def _find_end(self, segment: str) -> float:
        return self._since[segment] + _OVERLAP if segment in (self._older or ()) else float("inf")
