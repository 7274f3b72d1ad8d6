"""What happens in a life: calls of handlers, requests and log messages; and what of that should not have happened."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import re
import threading
from collections.abc import Callable, Iterator

# More requests of one operator in one second are a storm, and so are more in a minute without trouble.
STORM, STORM_IN_MINUTE = 600, 3000

# Handlers raise nothing of these by themselves, but what they return may be no child.
_BUG = re.compile(
    r"(AssertionError|AttributeError|LookupError|KeyError|RuntimeError|TypeError)\b(?!.*(metadata|no child))"
)
_PROMISE = re.compile(r"(?:[Tt]ried|[Tt]ry) again in ([\d.]+) seconds")


@dataclasses.dataclass(eq=False)
class Call:
    """One call of a handler."""

    operator: str
    run: int
    handler: str
    group: str
    uid: str
    name: str
    started: float
    seen: object = None
    ended: float | None = None
    succeeded: bool = False
    is_sync: bool = False
    returned: threading.Event = dataclasses.field(default_factory=threading.Event, repr=False)


@dataclasses.dataclass(frozen=True)
class Promise:
    """The log's word that something is tried again."""

    made: float
    seconds: float
    calls: int  # so far, of all handlers
    messages: int  # likewise, of the log
    name: str
    text: str


class Journal:
    """The calls, the requests and the findings of a life. *now* answers threads, too."""

    def __init__(self, abort: Callable[[], None], now: Callable[[], float], *, may_overlap: bool) -> None:
        self.now = now
        self.may_overlap = may_overlap  # calls of different operators
        self.calls: list[Call] = []
        self.running: list[Call] = []
        self.findings: dict[str, str] = {}
        self.requests: collections.Counter[tuple[str, int]] = collections.Counter()
        self.writes: list[tuple[float, str]] = []  # by operators, of objects by their names
        self.promises: list[Promise] = []
        self.messages: list[tuple[float, str, str]] = []
        self.changes: list[float] = []  # when operators came and went
        self.gone: set[str] = set()  # names of objects that were deleted
        self._abort = abort

    def find(self, kind: str, text: str) -> None:
        """Note what should not be; the first one of a kind counts."""
        self.findings.setdefault(kind, f"[{self.now():.3f}] {text}")

    def find_after(self, kind: str, text: str) -> None:
        """Note what is found when the life is over."""
        self.findings.setdefault(kind, text)

    def mark_peace(self, since: float) -> None:
        """Find storms in the quiet minute that has just passed."""
        sent = collections.Counter(operator for (operator, second) in self.requests.elements() if second >= since)
        for operator, number in sent.items():
            if number > STORM_IN_MINUTE:
                self.find("storm", f"{operator} has sent {number} requests in a quiet minute")

    @contextlib.contextmanager
    def call(self, call: Call) -> Iterator[Call]:
        """Note a call while it lasts. An object has one call of a group at a time."""
        for other in self.running:
            apart = self.may_overlap and other.operator != call.operator
            if call.group and (other.group, other.uid) == (call.group, call.uid) and not apart:
                who = call.operator if call.operator == other.operator else f"{call.operator} and {other.operator}"
                self.find("twice at once", f"{other.handler} and {call.handler} of {call.name}, by {who}")
        self.calls.append(call)
        self.running.append(call)
        try:
            yield call
            call.succeeded = True
        finally:
            call.ended = self.now()
            self.running.remove(call)
            call.returned.set()

    def note_request(self, operator: str, what: str) -> None:
        """Count a request; a storm ends the life."""
        second = int(self.now())
        self.requests[operator, second] += 1
        if self.requests[operator, second] > STORM:
            self.find("storm", f"{operator} sends more than {STORM} requests in a second, such as {what}")
            self._abort()

    def of(self, handler: str, name: str) -> list[Call]:
        """Return the calls of a handler for an object, in order."""
        return [call for call in self.calls if call.handler == handler and call.name == name]

    def last_seen(self, handler: str, name: str, uid: str = "") -> object:
        """Return what the last successful call of a handler for an object has seen.

        Without its *uid*, calls for earlier objects of that name count, too. They may come later, after a silent watch.
        """
        seen = [call.seen for call in self.of(handler, name) if call.succeeded and uid in ("", call.uid)]
        return seen[-1] if seen else "nothing"


class Log(logging.Handler):
    """The log of the operators, for the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.INFO)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message. It may come from a thread."""
        now, text = self._journal.now(), record.getMessage()
        ref = getattr(record, "k8s_ref", None) or {}
        self._journal.messages.append((now, record.levelname, f"{ref.get('name', '')}: {text}"))
        if (match := _PROMISE.search(text)) and ref.get("name"):
            self._journal.promises.append(
                Promise(
                    now, float(match[1]), len(self._journal.calls), len(self._journal.messages), str(ref["name"]), text
                )
            )
        if _BUG.search(text):
            self._journal.find("error", text)
