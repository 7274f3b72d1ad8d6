"""The ledger: why objects were reconciled, what ran for them, and which requests followed.

Theory of operation
===================

A reconcile is a *run*: it begins with its causes, and collects calls of handlers and requests. These find their run
in the context, so that nothing has to be passed on; threads and tasks that outlive a run, such as daemons, find
it there, too, and are on record on their own then.

At its end, a run is encoded into some dozens of bytes, and put on the *page* of its object, of which the oldest records
are dropped. Rendering is for later, and for who asks. Runs that find nothing to do, and timers, repeat themselves: they
are counted, and are one record as long as nothing else happens. An object without calls and requests has no page. There
are pages of a limited number of objects: the least recently active one is dropped.

To find which fields a watch event has changed takes longer than all the rest. So that is done for a limited number of
events a second, and in a storm the others have none.
"""

from __future__ import annotations

import contextvars
import itertools
import math
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from trioperator._concurrency.clock import find_clock
from trioperator._model.contention import Verdict
from trioperator._model.diff import Diff
from trioperator._model.field_managers import (
    Attribution,
    find_changed_fields,
    find_last_manager,
    format_field,
    iterate_fields,
)
from trioperator._model.lazy_object import outline_of
from trioperator._runtime.records import Causes, Changes, Note, Page, Subject

# Limit of the objects with a page.
_MAX_PAGES: Final = 5000
# Limits of what a run collects: calls and requests, and changed fields.
_MAX_NOTES: Final = 24
_MAX_FIELDS: Final = 24
# Limit of watch events for which the changed fields are determined: in a burst, and in a second.
_MAX_CHANGES: Final = 50
# The field manager of requests without one, which the API server takes from the header User-Agent.
_AGENT: Final = "trioperator"
# Limit of the names of field managers of the operator that are remembered.
_MAX_MANAGERS: Final = 32
# Limit of the causes of a run, and of those that are noted for an object before its next run.
_MAX_CAUSES: Final = 4

#: The run in the context, in which calls and requests are noted. Daemons and timers have runs that have ended.
current_run: Final[contextvars.ContextVar[Run]] = contextvars.ContextVar("trioperator-run")


class Owner(Protocol):
    """An object that has runs."""

    @property
    def uid(self) -> str: ...
    @property
    def subject(self) -> Subject: ...


class Run(msgspec.Struct, eq=False):
    """A reconcile of an object: what it collects until it has ended.

    Its *notes* are what was called and requested. *until* is when its last call has ended; 0 if it has made none.
    """

    owner: Owner
    began: float
    causes: Causes
    notes: list[Note] = []
    changes: Changes = ()
    omitted: int = 0
    until: float = 0.0
    writes: int = 0
    ended: bool = False


class Ledger:
    """The pages of the objects of one operator, by their uids."""

    def __init__(self, *, limit: int = _MAX_PAGES) -> None:
        self._pages: dict[str, Page] = {}  # the least recently active one first
        self._limit = limit
        self.contended: dict[str, tuple[Subject, tuple[Verdict, ...]]] = {}
        self.managers: set[str] = set()  # under whose names the operator's own clients have written
        self.now: Callable[[], float] = self._find_now
        self._query = ""  # of the last write
        self._place = "?"  # what the path of the last request began with: its API and namespace
        self.noted: dict[str, Causes] = {}  # why objects are going to be reconciled, where no watch event tells
        self._changed_at = self._taken_until = 0.0  # of the changes whose fields were found
        self.found_after = -math.inf  # the fields of changes are found for runs that begin after that

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, uid: str) -> Page | None:
        """Return the page of an object, if there is one."""
        return self._pages.get(uid)

    def note_cause(self, uid: str, what: str, detail: str | int | None = None) -> None:
        """Note why an object is going to be reconciled, where no watch event tells."""
        if len(self.noted) >= self._limit:
            self.noted.clear()  # of objects that are handled elsewhere by now
        noted = self.noted.setdefault(uid, [])
        if len(noted) < _MAX_CAUSES and (what, detail) not in noted:
            noted.append((what, detail))

    def take_causes(self, uid: str) -> Causes:
        """Return why an object is reconciled, as far as it was noted; forget that."""
        return self.noted.pop(uid, [])

    def find_own_managers(self, field_manager: str) -> frozenset[str]:
        """Return the names under which this operator writes: in whatever version, and by whatever replica."""
        return frozenset((_AGENT, field_manager, *self.managers))

    def pages(self) -> Iterator[tuple[str, Page]]:
        """Yield the uids of objects with their pages, the least recently active one first."""
        yield from self._pages.items()

    def begin(self, owner: Owner, causes: Causes) -> Run:
        """Begin a run in this task."""
        run = Run(owner, self.now(), causes)
        if len(causes) > _MAX_CAUSES:
            run.causes, run.omitted = causes[-_MAX_CAUSES:], len(causes) - _MAX_CAUSES
        current_run.set(run)
        return run

    def end(self, run: Run) -> None:
        """End a run, and put it on record."""
        run.ended = True
        uid, notes, began = run.owner.uid, run.notes, run.began
        page = self._pages.pop(uid, None)
        if page is None:
            if not notes:
                return
            page = self._make_page(run.owner)
        self._pages[uid] = page
        if notes:
            spent = int(((run.until or self.now()) - began) * 1000)
            page.add((began, spent, run.causes, run.changes, notes, run.omitted), run.writes)
        else:
            record = run.began, 0, run.causes, run.changes, (), run.omitted
            page.add_idle([cause[0] for cause in run.causes], run.began, record)

    def called(self, handler: str, began: float, result: str) -> None:
        """Note the end of a call of a handler in the context of an object."""
        run = current_run.get(None)
        if run is None:
            return
        run.until = now = self.now()
        spent = int((now - began) * 1000)
        if "<" in handler:  # of a test, whose name would take the room of several records
            handler = handler.rpartition(".<locals>.")[2]
        if run.ended:
            record = began, spent, run.causes[:1], (), ((handler, spent, result),)
            self._page(run).repeat((handler, result), began, record)
            return
        if len(run.notes) < _MAX_NOTES:
            run.notes.append((handler, spent, result))
        else:
            run.omitted += 1

    def requested(self, method: str, target: str, status: int) -> None:
        """Note a request in the context of an object, with the status of its response."""
        run = current_run.get(None)
        if run is None:
            return
        target, _, query = target.partition("?")
        if is_write := method != "GET" and 200 <= status < 300:
            run.writes += 1
            if query != self._query:  # nearly all have the same
                self._note_managers(query)
        path = target.removeprefix(self._place)
        if path is target:  # as it is: it has another place
            path = self._shorten(target)
        if run.ended:
            note, now = (method, path, status), self.now()
            self._page(run).repeat(note, now, (now, 0, run.causes[:1], (), (note,)), writes=int(is_write))
        elif len(run.notes) < _MAX_NOTES:
            run.notes.append((method, path, status))
        else:
            run.omitted += 1

    def note_change(
        self,
        run: Run,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        *,
        managed: Mapping[str, Any] | None = None,
        differences: Diff | None = None,
    ) -> None:
        """Note which fields have changed, and by whom, unless there were too many changes lately.

        *managed* is the object's metadata where *after* is only a part of the object; *differences* are those between
        both states, if they are known.
        """
        if run.began <= self.found_after:
            return
        self._take_share(run)
        if before is None:
            manager = find_last_manager(after)
            if manager is not None:
                run.changes = (*run.changes, ("", manager))
            return
        before, after = outline_of(before), outline_of(after)
        attribution = Attribution(before, after if managed is None else {**after, "metadata": managed})
        changed = find_changed_fields(before, after) if differences is None else iterate_fields(differences)
        some = itertools.islice(changed, max(0, _MAX_FIELDS - len(run.changes)))  # an object may have 100,000
        run.changes = (*run.changes, *((format_field(path), attribution.find(path)) for path in some))
        run.omitted += sum(1 for _ in changed)

    def _take_share(self, run: Run) -> None:
        """Take the share of a second of a change whose fields are found, a second in advance at most."""
        self._changed_at = max(self._changed_at, run.began)  # runs may be noted in another order than they began
        self._taken_until = max(self._taken_until, self._changed_at) + 1 / _MAX_CHANGES
        full_until = self._taken_until - 1 + 0.5 / _MAX_CHANGES  # half a share is more than rounding takes
        self.found_after = full_until if self._changed_at <= full_until else -math.inf

    def _find_now(self) -> float:
        """Return the time on Trio's clock, which is remembered."""
        self.now = find_clock()
        return self.now()

    def _note_managers(self, query: str) -> None:
        """Note the field managers in the query of a write."""
        self._query = query
        if len(self.managers) < _MAX_MANAGERS:
            self.managers.update(urllib.parse.parse_qs(query).get("fieldManager", ()))

    def _shorten(self, path: str) -> str:
        """Return the path of a request without the API and the namespace: ``databases/orders/status``."""
        before, found, inside = path.partition("/namespaces/")
        namespace, _, short = inside.partition("/")
        if not short:
            return path.split("/", 3 if path.startswith("/api/") else 4)[-1]
        self._place = f"{before}{found}{namespace}/"
        return short

    def _page(self, run: Run) -> Page:
        """Return the page of an object that is active."""
        page = self._pages.pop(run.owner.uid, None) or self._make_page(run.owner)
        self._pages[run.owner.uid] = page
        return page

    def _make_page(self, owner: Owner) -> Page:
        if len(self._pages) >= self._limit:
            del self._pages[next(iter(self._pages))]
        return Page(owner.subject)


def stand_alone(owner: Owner, what: str) -> None:
    """Let the rest of this task be on record on its own, for an object: it is a daemon or a timer."""
    current_run.set(Run(owner, 0.0, [(what, None)], ended=True))
