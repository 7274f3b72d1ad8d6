"""One managed webhook configuration: what was written, what is stored, and what replicas and others make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from trioperator._concurrency.pulse import Pulse
from trioperator._handling.reviews.webhook_configuration import ServedKinds, keep_rules
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.objects import RawObject
from trioperator._model.jsontypes import JsonObject
from trioperator._runtime.watching.scope import ObservedItems
from trioperator._webhooks.amendments import Repairs, StoredConfiguration, inject
from trioperator._webhooks.other_versions import OtherVersions
from trioperator._webhooks.trust import Trust
from trioperator.errors import ConnectionLostError

_decode: Final = msgspec.json.Decoder(StoredConfiguration).decode


def decode_stored(raw: bytes) -> StoredConfiguration:
    """Return the configuration in a response. Raises ConnectionLostError if there is none."""
    try:
        return _decode(raw)
    except DECODE_ERRORS as error:
        raise ConnectionLostError(f"The response is not a webhook configuration: {error}") from error


def _decode_watched(obj: RawObject) -> StoredConfiguration:
    return _decode(obj.raw)


class Configuration:
    """The configuration of one type; ``stored`` is watched, and *notify* called when it changes.

    ``written`` is what this operator has written, and ``sent`` what may be stored, though it is not known to be.
    ``differs`` is set when it should be repaired. Rules for kinds that are not among those ``served`` are left as they
    are: writes of such a kind are reviewed as soon as it is served.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self.stored = ObservedItems(_decode_watched, notify)
        self.written: list[JsonObject] | None = None
        self.sent: list[JsonObject] | None = None
        self.served = ServedKinds()
        self.differs = Pulse()
        self.repairs = Repairs()
        self.others = OtherVersions()
        self._trust = Trust()
        self._amended: tuple[list[JsonObject], list[JsonObject]] | None = None

    def join(
        self,
        webhooks: list[JsonObject],
        stored: StoredConfiguration | None,
        address: Mapping[str, Any],
        *,
        writes: bool = False,
    ) -> list[JsonObject]:
        """Return what is to be stored: the operator's webhooks, with what is left to others. They may be unreadable."""
        webhooks = keep_rules(webhooks, [] if stored is None else stored.webhooks, self.served)
        if stored is None:
            return webhooks
        others = self.others.keep(webhooks, stored.webhooks, address)
        wanted = self._trust.join(inject(webhooks, stored), stored.webhooks, others=others, writes=writes)
        return stored.webhooks if self._amended == (wanted, stored.webhooks) else wanted

    def note_written(self, wanted: list[JsonObject], stored: StoredConfiguration) -> bool:
        """Take the response to a write: the server's own form of it is left so. Return whether that is a new one."""
        self.others.note_dropped()
        if wanted == stored.webhooks or self._amended == (wanted, stored.webhooks):
            return False
        self._amended = (wanted, stored.webhooks)
        return True

    @property
    def watched(self) -> StoredConfiguration | None:
        """The configuration as it was seen last; None if there is none."""
        return next(iter(self.stored), None)

    def is_overtaken(self, version: str, seen: StoredConfiguration | None) -> bool:
        """Return whether others have changed it since it was stored in a version, before that was known.

        *seen* is what was watched before the write.
        """
        watched = self.watched
        if watched is None:
            return seen is not None
        newest = watched.metadata.resource_version
        return newest.isdecimal() and version.isdecimal() and int(newest) > int(version)

    def find_change(self, address: Mapping[str, Any]) -> tuple[list[JsonObject], StoredConfiguration] | None:
        """Return what is to be stored and what is, if that is known, and others have changed it."""
        if self.written is None or not self.stored.complete:
            return None
        stored = self.watched or StoredConfiguration()
        wanted = self.join(self.written, stored, address)
        return None if wanted == stored.webhooks else (wanted, stored)

    def is_own(self, stored: StoredConfiguration, address: Mapping[str, Any]) -> bool:
        """Return whether others have left what was written, or may have been, and no other replica has come since."""
        own = [self.join(each, stored, address) for each in (self.written, self.sent) if each is not None]
        return stored.webhooks in own and not self._trust.has_successors and not self.others.has_newer

    def find_expiry(self) -> float:
        """Return when the next CA or webhook of other replicas is dropped, which may be never."""
        return min(self._trust.find_expiry() or float("inf"), self.others.find_expiry())
