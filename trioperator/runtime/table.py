"""The object table: what the operator knows of the objects of one watch stream, and what is still to be done for them.

An object with nothing to do is an identity and a version: it has no task and no body. All of it changes between
checkpoints only.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trioperator.handling.indexing import Indices
from trioperator.handling.registry import KindHandlers
from trioperator.kube.watch import RawObject
from trioperator.logs import Logger, object_logger
from trioperator.model.resource import Resource
from trioperator.runtime.pending import Pending
from trioperator.runtime.unfinished import Unfinished

if TYPE_CHECKING:
    from trioperator.runtime.runs import ObjectBackground

__all__ = ["Kind", "Known", "Lane", "Notice", "ObjectTable"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Hold a resource kind together with the handlers of its objects."""

    resource: Resource
    handlers: KindHandlers

    @property
    def has_status(self) -> bool:
        """Tell whether the status is written by requests of its own."""
        return "status" in self.resource.subresources


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Be what the stream said of an object: ``type`` is None for what a list has found.

    ``body`` is given where the notice is our own conclusion: the object is gone, and this is what we last knew of it.
    """

    type: str | None
    version: int
    object: RawObject | None = None
    body: Mapping[str, Any] | None = None

    @property
    def generation(self) -> int | None:
        """Give the object's generation, where it has one."""
        if self.object is not None:
            return self.object.generation
        generation = self._metadata.get("generation")
        return generation if isinstance(generation, int) else None

    @property
    def deleting(self) -> bool:
        """Tell whether the object is being deleted."""
        return self.object.deleting if self.object is not None else bool(self._metadata.get("deletionTimestamp"))

    @property
    def _metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = (self.body or {}).get("metadata") or {}
        return metadata

    def decode(self) -> Mapping[str, Any]:
        """Give the object, decoded."""
        if self.body is not None:
            return self.body
        assert self.object is not None
        return self.object.decode()


class Lane(enum.Enum):
    """Name where an object waits for a worker."""

    FRESH = enum.auto()
    INITIAL = enum.auto()


class Known:
    """Be one object, as far as the operator knows it."""

    __slots__ = (
        "_memo",
        "alarm",
        "astray",
        "awaited",
        "background",
        "body",
        "busy",
        "called",
        "due",
        "echo",
        "failures",
        "fresh",
        "gone",
        "handled",
        "heard",
        "indexed",
        "initial",
        "last",
        "listener",
        "name",
        "namespace",
        "not_before",
        "notices",
        "pending",
        "queued",
        "released",
        "stripped",
        "table",
        "uid",
        "unfinished",
        "version",
        "wake",
    )

    def __init__(self, table: ObjectTable, uid: str, obj: RawObject, *, initial: bool) -> None:
        self.table = table
        self.uid = uid
        self.namespace = obj.namespace
        self.name = obj.name
        self.version: int = -1  # the newest version that is known, from the stream or from a response
        self.heard: int = -1  # the newest version that the stream has brought
        self.indexed: int = -1  # the newest version that is in the indices
        self.initial = initial  # was there before the operator, and was not handled since
        self.notices: collections.deque[Notice] | None = None
        self.body: Mapping[str, Any] | None = None  # the newest state, while there is something to do about it
        self.unfinished: Unfinished | None = None
        self.pending: Pending | None = None  # what handlers want stored on the object, and is not yet
        self.awaited: list[trio.Event] = []  # set when what is pending now has been stored, or cannot be
        self.background: ObjectBackground | None = None  # its daemons and timers, if there are or were any
        self.called = False  # a turn was called for, though the stream has brought nothing
        self.wake: trio.Event | None = None  # of what is done beside a handler at work
        self._memo: Any = None
        self.handled: int | None = None  # a hash of the essence that this process has handled last
        self.astray: bytes | None = None  # another essence, if some handler has seen that last
        self.listener: Callable[[Notice], None] | None = None  # hears of news while a handler is at work
        self.stripped: bytes | None = None  # that essence itself, where somebody takes it off the object
        self.last: RawObject | None = None  # the last state, for kinds with optional delete handlers
        self.gone = False
        self.released = False  # the delete handlers have ended, the finalizer was given up
        self.fresh = True
        self.queued: Lane | None = None
        self.busy = False
        self.due: float | None = None
        self.alarm: float | None = None  # when it is looked at next, if it is not at work
        self.failures = 0
        self.not_before: float | None = None  # after errors of our own
        self.echo: tuple[str, float] | None = None

    @property
    def memo(self) -> Any:
        """Give the memo that all handlers of the object share: a copy of the operator's, made when first asked for."""
        if self._memo is None:
            self._memo = copy.copy(self.table.memo)
        return self._memo

    def make_logger(self) -> Logger:
        """Make a logger that is bound to the object."""
        resource = self.table.kind.resource
        return object_logger(
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": self.name,
                "uid": self.uid,
                "namespace": self.namespace,
            }
        )

    @property
    def has_work(self) -> bool:
        """Tell whether a turn is to be taken now."""
        return self.called or bool(self.notices)

    def call(self) -> None:
        """Have a turn taken though the stream has brought nothing."""
        if self.gone:
            return
        self.called = self.fresh = True
        if self.wake is not None:
            self.wake.set()
        self.table.call(self)

    def take(self) -> Collection[Notice]:
        """Take all notices that have come, in order."""
        notices, self.notices = self.notices, None
        return notices or ()

    @property
    def is_unsaved(self) -> bool:
        """Tell whether something is to be stored on the object, and is not yet."""
        return bool(self.pending) or (self.unfinished is not None and self.unfinished.save_at is not None)

    def renew(self, body: Mapping[str, Any]) -> None:
        """Take a server's answer for the newest state."""
        self.body = body
        self.table.wrote(self, body)
        if self.listener is not None:
            self.listener(Notice("MODIFIED", self.version, body=body))
        if self.background is not None:
            self.background.renew(body, pending=self.pending, own=True)

    def forget_state(self) -> None:
        """Have nothing to do any more, until the stream brings news."""
        self.body = None
        self.unfinished = None
        self.pending = None
        awaited, self.awaited = self.awaited, []
        for written in awaited:
            written.set()

    def has_newer(self) -> bool:
        """Tell whether the stream has brought a state that is newer than the known one."""
        return any(notice.type == "DELETED" or notice.version > self.version for notice in self.notices or ())

    def has_vanished(self) -> bool:
        """Tell whether the stream has said that the object is gone."""
        return self.gone or any(notice.type == "DELETED" for notice in self.notices or ())


class Queue(Protocol):
    """Take objects that have something to do."""

    def add(self, known: Known) -> None: ...


class ObjectTable:
    """Know the objects of one stream: of one kind, in one namespace or everywhere.

    ``observe`` and ``conclude`` never wait, so that nothing can come between a table and its queue.
    """

    def __init__(
        self, kind: Kind, queue: Queue, *, memo: Any, consistency_timeout: float, indices: Indices | None = None
    ) -> None:
        self.kind = kind
        self.memo = memo
        self.indices: Indices = {} if indices is None else indices
        self.listed = trio.Event()  # or will not be
        self.begun: float | None = None  # when daemons and timers were first sought for its objects, on Trio's clock
        self._held: dict[Known, None] | None = None
        self.objects: dict[str, Known] = {}
        self._queue = queue
        self._consistency_timeout = consistency_timeout
        self._count = 0

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[Known]:
        return iter(self.objects.values())

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Note what the stream says of an object, and queue the object if that is news for anybody.

        Gives the object's key in this table.
        """
        uid = obj.uid or f"{obj.namespace}/{obj.name}"  # aggregated APIs may serve objects without one
        known = self.objects.get(uid)
        if known is None:
            if type == "DELETED" and not self.kind.handlers.events:
                return uid
            known = self.objects[uid] = Known(self, uid, obj, initial=type is None)
        version = self._version(known, type, obj.resource_version)
        if type is None and version <= known.heard:
            return uid  # listed once more, and nothing new
        known.heard = max(known.heard, version)
        if self.kind.handlers.delete_notices:
            known.last = obj
        if type == "DELETED":
            self.objects.pop(uid, None)
        elif version <= known.version and not self.kind.handlers.needs_echoes:
            return uid  # the echo of an own write, and nobody looks at raw events
        self._note(known, Notice(type, version, obj), fresh=type is not None)
        return uid

    def conclude(self, listed: Collection[str]) -> None:
        """Conclude from a complete list which objects have vanished unseen, and note that they are gone."""
        for known in [known for uid, known in self.objects.items() if uid not in listed]:
            del self.objects[known.uid]
            self._note(known, Notice("DELETED", known.version, body=self._last_state(known)), fresh=True)
        self.listed.set()

    def retire(self) -> None:
        """Have nothing done for the objects any more, though they are not gone."""
        self.kind = dataclasses.replace(self.kind, handlers=KindHandlers())

    def hold(self) -> None:
        """Keep objects from being queued, until they are released."""
        self._held = {}

    def release(self) -> None:
        """Queue what was held."""
        held, self._held = self._held, None
        for known in held or ():
            if known.has_work:
                self._queue.add(known)

    def call(self, known: Known) -> None:
        """Queue an object though there is no news of it."""
        self._queue.add(known)

    def wrote(self, known: Known, body: Mapping[str, Any]) -> None:
        """Note the object as an own write has left it, and drop its echo where that was faster than the answer."""
        text = str((body.get("metadata") or {}).get("resourceVersion") or "")
        known.version = max(known.version, self._version_written(known, text))
        if known.notices and not self.kind.handlers.needs_echoes and not known.has_newer():
            known.notices = None

    def _version_written(self, known: Known, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            # Opaque versions cannot be compared: until the stream brings just this one, what it brings is older.
            for notice in known.notices or ():
                if notice.object is not None and notice.object.resource_version == text:
                    return notice.version  # it was faster than the answer
            known.echo = (text, trio.current_time() + self._consistency_timeout)
            return self._next()

    def _version(self, known: Known, type: str | None, text: str) -> int:
        """Give the version as a number that grows: an opaque one is numbered by its arrival."""
        if known.echo is not None:
            expected, until = known.echo
            if text != expected and type is not None and trio.current_time() < until:
                return known.version
            known.echo = None
            if text == expected:
                return known.version
        try:
            return int(text)
        except ValueError:
            return self._next()

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _note(self, known: Known, notice: Notice, *, fresh: bool) -> None:
        if known.notices is None:
            known.notices = collections.deque()
            known.fresh = fresh
        known.fresh = known.fresh or fresh
        if known.notices and not self._count and not self.kind.handlers.events and known.notices[-1].type != "DELETED":
            known.notices.pop()  # only the newest state counts where nobody looks at raw events
        known.notices.append(notice)
        if known.listener is not None and (notice.type == "DELETED" or notice.version > known.version):
            known.listener(notice)
        if self._held is None:
            self._queue.add(known)
        else:
            self._held[known] = None

    def _last_state(self, known: Known) -> Mapping[str, Any]:
        if known.last is not None:
            return known.last.decode()
        resource = self.kind.resource
        metadata = {"name": known.name, "namespace": known.namespace, "uid": known.uid}
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {key: value for key, value in metadata.items() if value},
        }
