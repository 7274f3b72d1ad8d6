"""The last-handled configuration: which states of an object its handlers have seen, and which one counts as handled.

Pure: configurations are encoded essences, as they are stored and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class LastHandled:
    """Which configuration of one object counts as handled, as far as this process knows.

    An object may change while some of its handlers have ended and others have not. Then not all of them have seen the
    same configuration, and one of those that were seen is recorded as handled in place of the current one: the
    difference causes another update, for all handlers. Where the object is changed back meanwhile, so that there is no
    difference, those who have seen the other configuration must see that it was taken back: also those who have not
    ended with it, as they may have begun to do what it says.

    ``C`` is the current configuration, ``seen`` what handlers of the unfinished cause have ended with, ``missed`` what
    some handler has seen last although it is not the recorded one.

    ==============================================  ======================================  ==========  ================
    what happens                                    recorded as handled                     seen        missed
    ==============================================  ======================================  ==========  ================
    :meth:`resume`: read from a restarted object    --                                      what it has unchanged
    :meth:`miss`: likewise, where no handler ended  --                                      unchanged   what it has
    :meth:`rewind`: a restore has taken it back     --                                      unchanged   none
    :meth:`supersede`: another cause takes over     --                                      none        unchanged
    :meth:`see`: a handler has ended with C         --                                      and C       unchanged
    :meth:`attempt`: one is called with C, for an   --                                      unchanged   C
    update
    :meth:`finish`: all handlers have ended         one of seen that is not C, else C       none        one of seen that
                                                                                                        is not recorded
    :meth:`settle`: the recorded one and C are the  one of seen that is not C, else         none        C if that is not
    same, whatever happened in between              missed, else C                                      recorded
    :meth:`recall`, and the record is there         as it is there; ``kept`` is dropped     unchanged   unchanged
    :meth:`recall`, and somebody has removed it     kept in memory from now on              unchanged   unchanged
    ==============================================  ======================================  ==========  ================

    What must not be stored yet, as what belongs to it is not stored, or what cannot be stored, is *withheld*: it counts
    as recorded in this process, and another one finds the older record. The next :meth:`record` is the end of that.

    ``finish`` and ``settle`` tell only what to record. :meth:`record` is the transition, when that is stored. What is
    missed from then on is to be stored with it, as the object may be changed back while no operator runs.
    """

    __slots__ = ("_digest", "_kept", "_missed", "_seen", "_withheld")

    def __init__(self) -> None:
        self._digest: int | None = None  # of the recorded one; None: this process has recorded none
        self._kept: bytes | None = None  # the recorded one itself, where somebody removes it from the object
        self._missed: bytes | None = None
        self._withheld: bytes | None = None
        self._seen: tuple[bytes, ...] = ()

    @property
    def to_store(self) -> tuple[bytes, ...]:
        """The configurations that are to be stored with the progress.

        They are the first one that a handler of the unfinished cause has seen, and the last other one; if none has,
        what is missed.
        """
        return self._seen or (() if self._missed is None else (self._missed,))

    @property
    def is_recorded(self) -> bool:
        """Whether this process has recorded any configuration as handled."""
        return self._digest is not None

    def has_other(self, current: bytes) -> bool:
        """Check whether this process has recorded another configuration than the *current* one as handled."""
        return self._digest is not None and self._digest != hash(current)

    @property
    def is_kept(self) -> bool:
        """Whether the configuration is kept in memory because somebody removes it from the object."""
        return self._kept is not None and self._digest is not None

    @property
    def is_withheld(self) -> bool:
        """Whether the configuration must not be stored yet."""
        return self._withheld is not None

    @property
    def is_missed(self) -> bool:
        """Whether some handler has seen another configuration last than the recorded one."""
        return self._missed is not None

    def resume(self, seen: Iterable[bytes]) -> None:
        """Take up what was stored with the progress of an unfinished cause."""
        self._seen = tuple(dict.fromkeys(seen))

    def miss(self, missed: bytes) -> None:
        """Take up what was missed when another process recorded a configuration, unless this one has, too."""
        if not self.is_recorded:
            self._missed = missed

    def rewind(self) -> None:
        """Forget what this process has recorded, as the object is as it was before that: etcd was restored.

        The handlers of the unfinished cause go on from what they have seen.
        """
        self._digest = self._kept = self._missed = self._withheld = None

    def supersede(self) -> None:
        """Forget what the handlers of the unfinished cause have seen: another cause takes over."""
        self._seen = ()

    def see(self, current: bytes) -> None:
        """Note that a handler has ended with the *current* configuration: it has succeeded, or failed for good."""
        if current not in self._seen:
            self._seen = (*self._seen[:1], current)  # two are enough: one of them is not the recorded one

    def attempt(self, current: bytes) -> None:
        """Note that a handler is called for an update to the *current* configuration, and may not end with it."""
        self._missed = current

    def finish(self, current: bytes) -> bytes:
        """Return the configuration to be recorded as handled, as all handlers have ended."""
        return self._seen_beside(current) or current

    def settle(self, current: bytes) -> bytes:
        """Return the configuration to be recorded as handled, as the *current* one is the recorded one."""
        return self._seen_beside(current) or self._missed or current

    def find_missed(self, handled: bytes, current: bytes, *, finished: bool) -> bytes | None:
        """Return what is missed once a configuration is recorded as *handled*; None for nothing."""
        return self._seen_beside(handled) if finished else None if handled == current else current

    def record(self, handled: bytes, current: bytes, *, finished: bool, withheld: bool = False) -> None:
        """Note that a configuration is recorded as *handled*: when a cause has *finished*, or else was settled.

        It is recorded in memory only if it is *withheld*, as what belongs to it is not stored yet.
        """
        self._missed = self.find_missed(handled, current, finished=finished)
        self._digest = hash(handled)
        self._seen = ()
        self._withheld = handled if withheld else None

    def keep(self, handled: bytes) -> None:
        """Keep the configuration to be recorded in memory."""
        self._kept = handled

    def confirm(self) -> None:
        """Note that the current configuration is on the object as the last-handled one."""
        self._kept = None

    def recall(self, stored: Mapping[str, Any] | None, current: bytes) -> Mapping[str, Any] | None:
        """Return the last-handled configuration: the *stored* one, else the one in memory; None if there was none.

        Where somebody has removed it from the object, and it is not in memory either, it counts as empty.
        """
        if self._withheld is not None:
            withheld: dict[str, Any] = msgspec.json.decode(self._withheld)
            return withheld
        if stored is not None:
            self._kept = None  # somebody has put a record back
        if stored is not None or self._digest is None:
            return stored
        if self._kept is None and self._digest == hash(current):
            self._kept = current
        if self._kept is None:
            return {}
        kept: dict[str, Any] = msgspec.json.decode(self._kept)
        return kept

    def _seen_beside(self, configuration: bytes) -> bytes | None:
        for seen in self._seen:
            if seen != configuration:
                return seen
        return None
