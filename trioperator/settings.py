"""Settings: how the framework behaves in detail, one tree for each operator.

Startup handlers change them by assignment. Nonsense is refused there and then, by a ConfigError that names the setting;
so is a name that does not exist, by an AttributeError that names the nearest one. All times are in seconds. Nothing is
read from the environment. Names, meanings and defaults are Kopf's ("Configuration") unless said otherwise.
"""

# ruff: noqa: RUF009 -- the calls in the defaults make dataclass fields

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, NoReturn

from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "AdmissionSettings",
    "BackgroundSettings",
    "ExecutionSettings",
    "NetworkingSettings",
    "OperatorSettings",
    "PeeringSettings",
    "PersistenceSettings",
    "PostingSettings",
    "ProcessSettings",
    "QueueingSettings",
    "ScanningSettings",
    "WatchingSettings",
]

_FIBONACCI: Final = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)

# ------------------------------------------------------------------------------------------- what values may be


class _Rule(NamedTuple):
    """Tell what values a setting takes, in words and as a test, and what a good one is turned into."""

    expected: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] | None = None

    def or_none(self) -> _Rule:
        return _Rule(f"{self.expected}, or None", lambda value: value is None or self.accepts(value), self.convert)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_duration(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_delays(value: Any) -> bool:
    if _is_duration(value):
        return True
    if isinstance(value, list | tuple):
        return all(_is_duration(delay) for delay in value)
    # Whatever else can be iterated more than once: it may be infinite, so that its delays are not looked at.
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Iterator)


# A qualified name is all that the API server takes, and it would refuse each object one by one.
_QUALIFIED: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _has_methods(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


_BOOLEAN = _Rule("True or False", lambda value: isinstance(value, bool))
_TEXT = _Rule("a text that is not empty", lambda value: isinstance(value, str) and bool(value))
_INTEGER = _Rule("a whole number", _is_int)
_COUNT = _Rule("a whole number, 1 or more", lambda value: _is_int(value) and value >= 1)
_CYCLES = _Rule("a whole number, 0 or more", lambda value: _is_int(value) and value >= 0)
_SECONDS = _Rule("a number of seconds, 0 or more", _is_duration)
_TIMEOUT = _Rule("a number of seconds, more than 0", lambda value: _is_duration(value) and value > 0)
_DELAYS = _Rule(
    "a number of seconds or several, 0 or more each, which can be iterated again and again",
    _is_delays,
    lambda value: (value,) if _is_number(value) else value,
)
_FINALIZER = _Rule(
    "a finalizer's name, such as my-operator.example.com/finalizer",
    lambda value: isinstance(value, str) and _QUALIFIED.fullmatch(value) is not None,
)
_EXECUTOR = _Rule(
    "a concurrent.futures.ThreadPoolExecutor: its size is what is taken",
    lambda value: _is_int(getattr(value, "_max_workers", None)),
)
_PROGRESS_STORAGE = _Rule(
    "a progress storage, such as AnnotationsProgressStorage()", _has_methods("fetch", "store", "purge")
)
_DIFFBASE_STORAGE = _Rule(
    "a diff-base storage, such as AnnotationsDiffBaseStorage()", _has_methods("build", "fetch", "store")
)
_ANYTHING = _Rule("anything", lambda value: True)


def _setting(default: Any, rule: _Rule) -> Any:
    return dataclasses.field(default=default, metadata={"rule": rule})


# ---------------------------------------------------------------------------------------------------- sections


class _Section:
    """Be a group of settings: check each value on assignment."""

    __slots__ = ()
    _path: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __setattr__(self, name: str, value: Any) -> None:
        field = self.__dataclass_fields__.get(name)
        if field is None:
            if isinstance(getattr(type(self), name, None), property):
                object.__setattr__(self, name, value)
                return
            self._refuse_name(name)
        rule: _Rule = field.metadata["rule"]
        if not rule.accepts(value):
            raise ConfigError(f"{self._path}.{name} is {_quote(value)}, but it has to be {rule.expected}.")
        if rule.convert is not None and value is not None:
            value = rule.convert(value)
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # else any name would look like a good one to type checkers

        def __getattr__(self, name: str) -> NoReturn:
            self._refuse_name(name)

    def _refuse_name(self, name: str) -> NoReturn:
        known = [known for known in dir(type(self)) if not known.startswith("_")]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
        raise AttributeError(f"There is no setting {self._path}.{name}: {hint}", name=name, obj=self)


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


@dataclasses.dataclass(kw_only=True, slots=True)
class ProcessSettings(_Section):
    """Settings of the operator as a process."""

    _path: ClassVar[str] = "settings.process"

    grace: float = _setting(25.0, _SECONDS)
    """How long a stop in order may take as a whole. Kubernetes kills a pod after 30 seconds, by default."""

    ultimate_exiting_timeout: float | None = _setting(600, _SECONDS.or_none())
    """Kopf's limit of a stop. It has no effect: ``grace`` is the limit here."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PostingSettings(_Section):
    """Settings of the Kubernetes Events that are posted about objects."""

    _path: ClassVar[str] = "settings.posting"

    enabled: bool = _setting(True, _BOOLEAN)
    """Whether any events are posted."""

    loggers: bool = _setting(False, _BOOLEAN)
    """Whether messages of the handlers' loggers are posted as events."""

    level: int = _setting(logging.INFO, _INTEGER)
    """From which level on messages are posted."""

    reporting_component: str = _setting("trioperator", _TEXT)
    """Who the events come from."""

    reporting_instance: str = _setting("dev", _TEXT)
    """Which one of several the events come from."""

    event_name_prefix: str = _setting("trioperator-event-", _TEXT)
    """How the names of the events begin."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PeeringSettings(_Section):
    """Settings of how operators of one kind heed each other."""

    _path: ClassVar[str] = "settings.peering"

    name: str = _setting("default", _TEXT)
    """The name of the peering object."""

    stealth: bool = _setting(False, _BOOLEAN)
    """Whether to keep silent in the logs about signs of life."""

    priority: int = _setting(0, _INTEGER)
    """Who handles the objects: the operator of the highest priority."""

    lifetime: int = _setting(60, _TIMEOUT)
    """How long a sign of life is good for."""

    mandatory: bool = _setting(False, _BOOLEAN)
    """Whether to wait for the peering object to exist."""

    standalone: bool = _setting(False, _BOOLEAN)
    """Whether to heed nobody."""

    clusterwide: bool = _setting(False, _BOOLEAN)
    """Whether the peering is that of operators of the whole cluster."""

    @property
    def namespaced(self) -> bool:
        """The opposite of ``clusterwide``."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass(kw_only=True, slots=True)
class WatchingSettings(_Section):
    """Settings of lists and watches."""

    _path: ClassVar[str] = "settings.watching"

    server_timeout: float | None = _setting(None, _TIMEOUT.or_none())
    """How long the server is asked to keep a watch open; None: as long as it likes."""

    client_timeout: float | None = _setting(None, _TIMEOUT.or_none())
    """How long a watch is kept open by the operator, connecting included; None: forever."""

    connect_timeout: float | None = _setting(None, _TIMEOUT.or_none())
    """How long connecting for a watch may take; None: ``networking.connect_timeout``."""

    reconnect_backoff: float = _setting(0.1, _SECONDS)
    """How long to wait from the end of a watch to the next one."""

    inactivity_timeout: float = _setting(70.0, _TIMEOUT)
    """How long a watch may be silent until it counts as dead. Servers send bookmarks once a minute."""

    page_size: int = _setting(500, _COUNT)
    """How many objects a page of a list has."""


@dataclasses.dataclass(kw_only=True, slots=True)
class QueueingSettings(_Section):
    """Settings of how objects are taken in turn."""

    _path: ClassVar[str] = "settings.queueing"

    worker_limit: int | None = _setting(256, _COUNT.or_none())
    """How many objects are handled at the same time; None: all. Kopf's default is None."""

    idle_timeout: float = _setting(5.0, _SECONDS)
    """Kopf's time for which an idle object keeps its worker. It has no effect: an idle object has no worker."""

    exit_timeout: float = _setting(2.0, _SECONDS)
    """Kopf's time for workers to end. It has no effect: ``process.grace`` holds for everything."""

    error_delays: Iterable[float] = _setting(_FIBONACCI, _DELAYS)
    """How long an object rests after each of the framework's own errors with it in a row; the last one is for all
    further errors, and with none there is no rest. A single number is one delay."""

    batch_window: float = _setting(0.1, _SECONDS)
    """Kopf's time to gather events. It has no effect, there neither."""


@dataclasses.dataclass(kw_only=True, slots=True)
class ScanningSettings(_Section):
    """Settings of how namespaces and resource kinds are discovered."""

    _path: ClassVar[str] = "settings.scanning"

    disabled: bool = _setting(False, _BOOLEAN)
    """Whether to look at them when the operator starts only, and not to observe them."""


@dataclasses.dataclass(kw_only=True, slots=True)
class AdmissionSettings(_Section):
    """Settings of the admission webhooks."""

    _path: ClassVar[str] = "settings.admission"

    server: Any = _setting(None, _ANYTHING)
    """The server or the tunnel that takes the requests."""

    managed: str | None = _setting(None, _TEXT.or_none())
    """The name of the webhook configurations that the operator keeps up to date; None: it keeps none."""


@dataclasses.dataclass(kw_only=True, slots=True)
class ExecutionSettings(_Section):
    """Settings of how handlers are called."""

    _path: ClassVar[str] = "settings.execution"

    default_backoff: float = _setting(60, _SECONDS)
    """How long after an arbitrary error a handler is tried again, if it does not say so itself."""

    max_workers: int = _setting(64, _COUNT)
    """How many threads there are for handlers that are not async."""

    executor: Executor | None = _setting(None, _EXECUTOR.or_none())
    """Kopf's pool of threads. Assigning one sets ``max_workers`` to its size; threads are Trio's."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Not super(): a dataclass with slots is another class than the one that the method was written in.
        _Section.__setattr__(self, name, value)
        if name == "executor" and value is not None:
            self.max_workers = value._max_workers


@dataclasses.dataclass(kw_only=True, slots=True)
class NetworkingSettings(_Section):
    """Settings of single requests."""

    _path: ClassVar[str] = "settings.networking"

    request_timeout: float | None = _setting(300.0, _TIMEOUT.or_none())
    """How long a request may take, watches excepted; None: forever."""

    connect_timeout: float | None = _setting(None, _TIMEOUT.or_none())
    """How long connecting may take; None: as long as the request."""

    error_backoffs: Iterable[float] = _setting((1, 1, 2, 3, 5, 8, 13, 21), _DELAYS)
    """How long to wait before each further attempt of a request that had no answer or an HTTP 5xx or 429. After the
    last one the error escalates. It may be infinite. A single number is one delay."""

    enforce_retry_after: bool = _setting(False, _BOOLEAN)
    """Whether the server's ``Retry-After`` also shortens the operator's own delay."""

    trust_env: bool = _setting(False, _BOOLEAN)
    """Whether ``HTTP_PROXY`` and the like are heeded."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PersistenceSettings(_Section):
    """Settings of what the operator remembers, and where."""

    _path: ClassVar[str] = "settings.persistence"

    finalizer: str = _setting("trioperator.dev/finalizer", _FINALIZER)
    """The finalizer that keeps objects until their deletion is handled."""

    progress_storage: Any = _setting(None, _PROGRESS_STORAGE.or_none())
    """Where the progress of handlers is kept: a progress storage; None: in annotations of the default prefix.

    Its type is of a higher layer, so that only its methods are checked here."""

    diffbase_storage: Any = _setting(None, _DIFFBASE_STORAGE.or_none())
    """Where last handled states are kept: a diff-base storage; None: in an annotation of the default prefix."""

    consistency_timeout: float = _setting(5.0, _SECONDS)
    """How long to wait for the operator's own change to come back by the watch; 0: not at all."""

    write_delay: float = _setting(0.1, _SECONDS)
    """How long after its end a handler is on record at the latest: those that end meanwhile are stored together."""


@dataclasses.dataclass(kw_only=True, slots=True)
class BackgroundSettings(_Section):
    """Settings of daemons and timers."""

    _path: ClassVar[str] = "settings.background"

    cancellation_polling: float = _setting(60, _TIMEOUT)
    """How often it is logged that a daemon still runs which was told to stop, and has no cancellation timeout."""

    max_threads: int = _setting(1000, _COUNT)
    """How many daemons that are not async can run at the same time: each takes a thread of its own."""

    exit_timeout: float = _setting(5.0, _SECONDS)
    """How long a daemon with no cancellation timeout may take to end when the operator stops, until it is cancelled."""

    spread: float = _setting(10.0, _SECONDS)
    """Over how many seconds the first calls of timers are spread for objects that were there before the operator; over
    their interval, if that is shorter; 0: not at all."""

    instant_exit_timeout: float | None = _setting(None, _SECONDS.or_none())
    """Kopf's time for daemons to end at once when told to. It has no effect: their ends are events here."""

    instant_exit_zero_time_cycles: int | None = _setting(10, _CYCLES.or_none())
    """Kopf's number of event loop cycles for the same. It has no effect."""


# ---------------------------------------------------------------------------------------------------- the tree


def _section(kind: type[_Section]) -> Any:
    rule = _Rule(f"of the class {kind.__name__}", lambda value: type(value) is kind or isinstance(value, kind))
    return dataclasses.field(default_factory=kind, metadata={"rule": rule})


@dataclasses.dataclass(kw_only=True, slots=True)
class OperatorSettings(_Section):
    """All settings of one operator.

    Guarantees: what is assigned to any of them is checked, with a ConfigError for a bad value and an AttributeError for
    a name that does not exist.
    """

    _path: ClassVar[str] = "settings"

    process: ProcessSettings = _section(ProcessSettings)
    posting: PostingSettings = _section(PostingSettings)
    peering: PeeringSettings = _section(PeeringSettings)
    watching: WatchingSettings = _section(WatchingSettings)
    queueing: QueueingSettings = _section(QueueingSettings)
    scanning: ScanningSettings = _section(ScanningSettings)
    admission: AdmissionSettings = _section(AdmissionSettings)
    execution: ExecutionSettings = _section(ExecutionSettings)
    networking: NetworkingSettings = _section(NetworkingSettings)
    persistence: PersistenceSettings = _section(PersistenceSettings)
    background: BackgroundSettings = _section(BackgroundSettings)

    @property
    def batching(self) -> QueueingSettings:
        """The old name of ``queueing``."""
        return self.queueing

    @batching.setter
    def batching(self, value: QueueingSettings) -> None:
        self.queueing = value
