"""Settings: how the framework behaves in detail, one tree for each operator.

Startup handlers change them by assignment. Nonsense is refused there and then, by a ConfigError that names the setting;
so is a name that does not exist, by an AttributeError that names the nearest one. All times are in seconds. Nothing is
read from the environment. Names, meanings and defaults are Kopf's ("Configuration") unless said otherwise.
"""

# ruff: noqa: RUF009 -- the calls in the defaults make dataclass fields

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trioperator.settings.rules import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    CYCLES,
    DELAYS,
    DIFFBASE_STORAGE,
    EXECUTOR,
    FINALIZER,
    INTEGER,
    PROGRESS_STORAGE,
    SECONDS,
    TEXT,
    TIMEOUT,
    Rule,
    Section,
    setting,
)

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


@dataclasses.dataclass(kw_only=True, slots=True)
class ProcessSettings(Section):
    """Settings of the operator as a process."""

    _path: ClassVar[str] = "settings.process"

    grace: float = setting(25.0, SECONDS)
    """How long a stop in order may take as a whole. Kubernetes kills a pod after 30 seconds, by default."""

    ultimate_exiting_timeout: float | None = setting(600, SECONDS.or_none())
    """Kopf's limit of a stop. It has no effect: ``grace`` is the limit here."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PostingSettings(Section):
    """Settings of the Kubernetes Events that are posted about objects."""

    _path: ClassVar[str] = "settings.posting"

    enabled: bool = setting(True, BOOLEAN)
    """Whether any events are posted."""

    loggers: bool = setting(False, BOOLEAN)
    """Whether messages of the handlers' loggers are posted as events."""

    level: int = setting(logging.INFO, INTEGER)
    """From which level on messages are posted."""

    reporting_component: str = setting("trioperator", TEXT)
    """Who the events come from."""

    reporting_instance: str = setting("dev", TEXT)
    """Which one of several the events come from."""

    event_name_prefix: str = setting("trioperator-event-", TEXT)
    """How the names of the events begin."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PeeringSettings(Section):
    """Settings of how operators of one kind heed each other."""

    _path: ClassVar[str] = "settings.peering"

    name: str = setting("default", TEXT)
    """The name of the peering object."""

    stealth: bool = setting(False, BOOLEAN)
    """Whether to keep silent in the logs about signs of life."""

    priority: int = setting(0, INTEGER)
    """Who handles the objects: the operator of the highest priority."""

    lifetime: int = setting(60, TIMEOUT)
    """How long a sign of life is good for."""

    mandatory: bool = setting(False, BOOLEAN)
    """Whether to wait for the peering object to exist."""

    standalone: bool = setting(False, BOOLEAN)
    """Whether to heed nobody."""

    clusterwide: bool = setting(False, BOOLEAN)
    """Whether the peering is that of operators of the whole cluster."""

    @property
    def namespaced(self) -> bool:
        """The opposite of ``clusterwide``."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass(kw_only=True, slots=True)
class WatchingSettings(Section):
    """Settings of lists and watches."""

    _path: ClassVar[str] = "settings.watching"

    server_timeout: float | None = setting(None, TIMEOUT.or_none())
    """How long the server is asked to keep a watch open; None: as long as it likes."""

    client_timeout: float | None = setting(None, TIMEOUT.or_none())
    """How long a watch is kept open by the operator, connecting included; None: forever."""

    connect_timeout: float | None = setting(None, TIMEOUT.or_none())
    """How long connecting for a watch may take; None: ``networking.connect_timeout``."""

    reconnect_backoff: float = setting(0.1, SECONDS)
    """How long to wait from the end of a watch to the next one."""

    inactivity_timeout: float = setting(70.0, TIMEOUT)
    """How long a watch may be silent until it counts as dead. Servers send bookmarks once a minute."""

    page_size: int = setting(500, COUNT)
    """How many objects a page of a list has."""


@dataclasses.dataclass(kw_only=True, slots=True)
class QueueingSettings(Section):
    """Settings of how objects are taken in turn."""

    _path: ClassVar[str] = "settings.queueing"

    worker_limit: int | None = setting(256, COUNT.or_none())
    """How many objects are handled at the same time; None: all. Kopf's default is None."""

    idle_timeout: float = setting(5.0, SECONDS)
    """Kopf's time for which an idle object keeps its worker. It has no effect: an idle object has no worker."""

    exit_timeout: float = setting(2.0, SECONDS)
    """Kopf's time for workers to end. It has no effect: ``process.grace`` holds for everything."""

    error_delays: Iterable[float] = setting(_FIBONACCI, DELAYS)
    """How long an object rests after each of the framework's own errors with it in a row; the last one is for all
    further errors, and with none there is no rest. A single number is one delay."""

    batch_window: float = setting(0.1, SECONDS)
    """Kopf's time to gather events. It has no effect, there neither."""


@dataclasses.dataclass(kw_only=True, slots=True)
class ScanningSettings(Section):
    """Settings of how namespaces and resource kinds are discovered."""

    _path: ClassVar[str] = "settings.scanning"

    disabled: bool = setting(False, BOOLEAN)
    """Whether to look at them when the operator starts only, and not to observe them."""


@dataclasses.dataclass(kw_only=True, slots=True)
class AdmissionSettings(Section):
    """Settings of the admission webhooks."""

    _path: ClassVar[str] = "settings.admission"

    server: Any = setting(None, ANYTHING)
    """The server or the tunnel that takes the requests."""

    managed: str | None = setting(None, TEXT.or_none())
    """The name of the webhook configurations that the operator keeps up to date; None: it keeps none."""


@dataclasses.dataclass(kw_only=True, slots=True)
class ExecutionSettings(Section):
    """Settings of how handlers are called."""

    _path: ClassVar[str] = "settings.execution"

    default_backoff: float = setting(60, SECONDS)
    """How long after an arbitrary error a handler is tried again, if it does not say so itself."""

    max_workers: int = setting(64, COUNT)
    """How many threads there are for handlers that are not async."""

    executor: Executor | None = setting(None, EXECUTOR.or_none())
    """Kopf's pool of threads. Assigning one sets ``max_workers`` to its size; threads are Trio's."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Not super(): a dataclass with slots is another class than the one that the method was written in.
        Section.__setattr__(self, name, value)
        if name == "executor" and value is not None:
            self.max_workers = value._max_workers


@dataclasses.dataclass(kw_only=True, slots=True)
class NetworkingSettings(Section):
    """Settings of single requests."""

    _path: ClassVar[str] = "settings.networking"

    request_timeout: float | None = setting(300.0, TIMEOUT.or_none())
    """How long a request may take, watches excepted; None: forever."""

    connect_timeout: float | None = setting(None, TIMEOUT.or_none())
    """How long connecting may take; None: as long as the request."""

    error_backoffs: Iterable[float] = setting((1, 1, 2, 3, 5, 8, 13, 21), DELAYS)
    """How long to wait before each further attempt of a request that had no answer or an HTTP 5xx or 429. After the
    last one the error escalates. It may be infinite. A single number is one delay."""

    enforce_retry_after: bool = setting(False, BOOLEAN)
    """Whether the server's ``Retry-After`` also shortens the operator's own delay."""

    trust_env: bool = setting(False, BOOLEAN)
    """Whether ``HTTP_PROXY`` and the like are heeded."""


@dataclasses.dataclass(kw_only=True, slots=True)
class PersistenceSettings(Section):
    """Settings of what the operator remembers, and where."""

    _path: ClassVar[str] = "settings.persistence"

    finalizer: str = setting("trioperator.dev/finalizer", FINALIZER)
    """The finalizer that keeps objects until their deletion is handled."""

    progress_storage: Any = setting(None, PROGRESS_STORAGE.or_none())
    """Where the progress of handlers is kept: a progress storage; None: in annotations of the default prefix.

    Its type is of a higher layer, so that only its methods are checked here."""

    diffbase_storage: Any = setting(None, DIFFBASE_STORAGE.or_none())
    """Where last handled states are kept: a diff-base storage; None: in an annotation of the default prefix."""

    consistency_timeout: float = setting(5.0, SECONDS)
    """How long to wait for the operator's own change to come back by the watch; 0: not at all."""

    write_delay: float = setting(0.1, SECONDS)
    """How long after its end a handler is on record at the latest: those that end meanwhile are stored together."""


@dataclasses.dataclass(kw_only=True, slots=True)
class BackgroundSettings(Section):
    """Settings of daemons and timers."""

    _path: ClassVar[str] = "settings.background"

    cancellation_polling: float = setting(60, TIMEOUT)
    """How often it is logged that a daemon still runs which was told to stop, and has no cancellation timeout."""

    max_threads: int = setting(1000, COUNT)
    """How many daemons that are not async can run at the same time: each takes a thread of its own."""

    exit_timeout: float = setting(5.0, SECONDS)
    """How long a daemon with no cancellation timeout may take to end when the operator stops, until it is cancelled."""

    spread: float = setting(10.0, SECONDS)
    """Over how many seconds the first calls of timers are spread for objects that were there before the operator; over
    their interval, if that is shorter; 0: not at all."""

    instant_exit_timeout: float | None = setting(None, SECONDS.or_none())
    """Kopf's time for daemons to end at once when told to. It has no effect: their ends are events here."""

    instant_exit_zero_time_cycles: int | None = setting(10, CYCLES.or_none())
    """Kopf's number of event loop cycles for the same. It has no effect."""


def _section(kind: type[Section]) -> Any:
    rule = Rule(f"of the class {kind.__name__}", lambda value: isinstance(value, kind))
    return dataclasses.field(default_factory=kind, metadata={"rule": rule})


@dataclasses.dataclass(kw_only=True, slots=True)
class OperatorSettings(Section):
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
