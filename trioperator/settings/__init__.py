"""Settings of operators.

Startup handlers change them by assignment; each operator has its own. Invalid values raise ConfigError with the name of
the setting; unknown names raise AttributeError with the closest name. All times are in seconds. Names, meanings and
defaults are Kopf's ("Configuration") unless stated otherwise. Environment variables are not read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trioperator.settings.admission import AdmissionSettings
from trioperator.settings.contention import ContentionSettings
from trioperator.settings.coordination import LeadershipSettings, PeeringSettings
from trioperator.settings.crds import CrdsSettings
from trioperator.settings.pausing import PausingSettings
from trioperator.settings.posting import PostingSettings
from trioperator.settings.rules import (
    BOOLEAN,
    COUNT,
    DELAYS,
    DIFFBASE_STORAGE,
    DIGESTED_FIELDS,
    EXECUTOR,
    FIELD_MANAGER,
    FIELD_SELECTORS,
    FINALIZER,
    LABEL_SELECTORS,
    OWNER_LABELS,
    PROGRESS_STORAGE,
    SECONDS,
    SHARD_SELECTORS,
    TEXT,
    TIMEOUT,
    Rule,
    Section,
    section,
    setting,
)
from trioperator.settings.selectors import SelectorMapping

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "AdmissionSettings",
    "BackgroundSettings",
    "ExecutionSettings",
    "LeadershipSettings",
    "NetworkingSettings",
    "OperatorSettings",
    "PausingSettings",
    "PeeringSettings",
    "PersistenceSettings",
    "PostingSettings",
    "ProcessSettings",
    "QueueingSettings",
    "ScanningSettings",
    "WatchingSettings",
]

_MAX_WORKERS: Final = 64
_FIBONACCI: Final = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)


@section
class ProcessSettings(Section):
    """Settings of the operator's process: see docs/settings.md."""

    _path: ClassVar[str] = "settings.process"

    grace: float = setting(25.0, SECONDS)
    """Seconds that stopping may take in total; default: 25. By default, Kubernetes kills a pod after 30 seconds."""

    unresponsive_limit: float | None = setting(30.0, TIMEOUT.or_none())
    """Seconds for which the event loop may be blocked until ``/livez`` fails, so that Kubernetes restarts the pod;
    default: 30. None: it does not fail for that. Kopf has no such probe."""


@section
class WatchingSettings(Section):
    """Settings of list and watch requests: see docs/settings.md. All times are in seconds."""

    _path: ClassVar[str] = "settings.watching"
    # Whether kinds with event handlers are selected, too: an object that enters is then added, not modified.
    INFERS_FOR_EVENTS: ClassVar[bool] = True

    server_timeout: float | None = setting(None, TIMEOUT.or_none())
    """Duration of a watch in seconds, as requested from the server; default: None, a random time from 300 to 600 for
    each watch. The operator ends a watch that the server has not ended 30 seconds later."""

    client_timeout: float | None = setting(None, TIMEOUT.or_none())
    """Seconds after which the operator ends a watch, connecting included; default: None, never."""

    connect_timeout: float | None = setting(None, TIMEOUT.or_none())
    """Seconds that connecting for a watch may take; default: None, ``networking.connect_timeout``."""

    reconnect_backoff: float = setting(0.1, SECONDS)
    """Seconds from the end of a watch to the next one; default: 0.1."""

    inactivity_timeout: float | None = setting(None, TIMEOUT.or_none())
    """Seconds that a watch may be silent before it is restarted from its last version, as its connection may have gone
    deaf; default: None (Kopf: 70), a random time from 75 to 86, or longer where the server sends bookmarks more rarely
    than once a minute. ``math.inf``: until it should have ended by ``server_timeout``."""

    page_size: int = setting(500, COUNT)
    """Number of objects in one page of a list; default: 500. If the server forgets the list before its last page (HTTP
    410), the list is requested as a whole. A page above 32 MiB is requested again, with fewer objects."""

    label_selectors: SelectorMapping = setting({}, LABEL_SELECTORS)
    """Label selectors of the list and watch requests, by the kinds that they are for, in the syntax of the API server:
    ``label_selectors["pods"] = "app=web"``. All that are for a kind have to match."""

    field_selectors: SelectorMapping = setting({}, FIELD_SELECTORS)
    """Field selectors, likewise: ``field_selectors["pods"] = "status.phase!=Succeeded"``."""

    shard_selectors: SelectorMapping = setting({}, SHARD_SELECTORS)
    """Shard selectors, by which several operators divide the objects without knowing of each other:
    ``shard_selectors["pods"] = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"``. The
    first one that is for a kind counts. Objects of other ranges are passed over if the API server sends them."""

    initial_streaming: bool = setting(False, BOOLEAN)
    """Whether the first list of a kind is a part of its watch, in place of pages; default: False. API servers that
    cannot do that (before Kubernetes 1.34, as a rule) are asked for pages."""

    infer_selectors: bool = setting(True, BOOLEAN)
    """Whether the API server sends only the objects that the handlers of a kind require by their filters, as far as it
    can evaluate these: labels, names, namespaces and the selectable fields of CRDs; default: True (Kopf: False)."""


@section
class QueueingSettings(Section):
    """Settings of the work queue: see docs/settings.md. Also available as ``settings.batching``."""

    _path: ClassVar[str] = "settings.queueing"

    worker_limit: int | None = setting(256, COUNT.or_none())
    """Number of objects that are handled at the same time; default: 256 (Kopf: None). None: no limit."""

    error_delays: Iterable[float] = setting(_FIBONACCI, DELAYS)
    """Seconds of backoff after consecutive errors of the framework with an object; default: 1, 1, 2, 3, 5, ... 610. The
    last one is repeated. If empty, the object is handled again only when it changes. A single number is one delay."""

    batch_window: float = setting(0.0, SECONDS)
    """Seconds from a change of an object until it is handled, together with what has changed meanwhile; default: 0."""

    backlog_limit: int = setting(100, COUNT)
    """Number of watch events of an object that may be pending for its ``on.event`` handlers; default: 100 (Kopf: no
    limit). Beyond that, a change replaces the change before it, with a warning. Additions and deletions are never
    replaced."""


@section
class ScanningSettings(Section):
    """Settings of the discovery of namespaces and resource kinds: see docs/settings.md."""

    _path: ClassVar[str] = "settings.scanning"

    disabled: bool = setting(False, BOOLEAN)
    """Whether namespaces and CRDs are not watched: resource kinds are discovered only on start, and of namespaces only
    those that are named exactly are served; default: False."""


@section
class ExecutionSettings(Section):
    """Settings of calls of handlers: see docs/settings.md."""

    _path: ClassVar[str] = "settings.execution"

    default_backoff: float = setting(60, SECONDS)
    """Seconds before a handler without ``backoff=`` is retried after an arbitrary exception; default: 60."""

    activity_retries: int | None = setting(10, COUNT.or_none())
    """Number of attempts of a startup, login or cleanup handler without ``retries=`` and ``timeout=``; default: 10
    (Kopf: no limit). None: no limit."""

    max_workers: int = setting(_MAX_WORKERS, COUNT)
    """Number of threads for sync handlers; default: 64. Assigning None, Kopf's default, resets it."""

    blocking_limit: float | None = setting(1.0, TIMEOUT.or_none())
    """Seconds for which a function may block the event loop before it is reported in the log, with its stack; default:
    1 (Kopf has no such report). None: it is not reported."""

    blocking_fails: bool = setting(False, BOOLEAN)
    """Whether an async handler fails permanently if it has blocked the event loop for ``blocking_limit``; default:
    False (Kopf has no such setting). For tests, and for operators that must not be late."""

    executor: Executor | None = setting(None, EXECUTOR.or_none())
    """Kopf's thread pool; default: None. Assigning one sets ``max_workers`` to its size. The threads are Trio's; the
    pool's initializer is called in each of them before the first handler."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_workers" and value is None:  # Kopf's default
            value = _MAX_WORKERS
        # Not super(): a dataclass with slots is not the class in whose body the method was defined.
        Section.__setattr__(self, name, value)
        if name == "executor" and value is not None:
            self.max_workers = value._max_workers

    @property
    def threads(self) -> int:
        """Number of threads for sync handlers that is in effect."""
        return self.max_workers or _MAX_WORKERS


@section
class NetworkingSettings(Section):
    """Settings of single requests: see docs/settings.md. All times are in seconds."""

    _path: ClassVar[str] = "settings.networking"

    request_timeout: float | None = setting(300.0, TIMEOUT.or_none())
    """Seconds that one attempt of a request may take, watches excepted; default: 300. None: no limit. It does not count
    how long the request waits for one of the operator's connections (``max_connections``)."""

    connect_timeout: float | None = setting(None, TIMEOUT.or_none())
    """Seconds that connecting may take, with looking up the host and TLS; default: None, 30."""

    error_backoffs: Iterable[float] = setting((1, 1, 2, 3, 5, 8, 13, 21), DELAYS)
    """Seconds before each retry of a request without a response, or with an HTTP 5xx or 429; default: 1, 1, 2, 3, 5, 8,
    13, 21. After the last one the error is raised. It may be infinite. A single number is one delay."""

    enforce_retry_after: bool = setting(False, BOOLEAN)
    """Whether the server's ``Retry-After`` also shortens the operator's own delay; default: False."""

    response_limit: int = setting(256 * 1024 * 1024, COUNT)
    """Bytes that the body of a response may have, watches excepted; default: 268435456 (256 MiB). A larger one is an
    error; pages of lists are made smaller instead."""

    max_connections: int = setting(20, COUNT)
    """Number of concurrent requests, watches and followed logs excepted; default: 20. Others wait for their turn;
    leases and peering have connections of their own."""

    trust_env: bool = setting(False, BOOLEAN)
    """Whether proxies are read from ``HTTP_PROXY`` and similar environment variables, and logins from ``~/.netrc``;
    default: False."""

    login_libraries: bool = setting(True, BOOLEAN)
    """Whether the client libraries that the operator's files have imported are logged in with the operator's
    credentials, unless they are configured already; default: True."""


@section
class PersistenceSettings(Section):
    """Settings of what is stored on objects: see docs/settings.md."""

    _path: ClassVar[str] = "settings.persistence"
    #: Whether handlers of a field keep only objects in scope that have or had it, as Kopf does against its manual.
    needs_fields: ClassVar[bool] = False

    finalizer: str | None = setting("trioperator.dev/finalizer", FINALIZER.or_none())
    """Finalizer that blocks the deletion of objects until it is handled; default: "trioperator.dev/finalizer". With
    None, nothing blocks it: delete handlers are optional ones, and daemons end when their object is gone."""

    progress_storage: Any = setting(None, PROGRESS_STORAGE.or_none())
    """Storage of the progress of handlers, such as ``AnnotationsProgressStorage()``; default: None, a
    ``SmartProgressStorage()``. Only its methods are checked, as its type is defined in a higher layer."""

    diffbase_storage: Any = setting(None, DIFFBASE_STORAGE.or_none())
    """Storage of the last-handled configuration, such as ``StatusDiffBaseStorage()``; default: None, an
    ``AnnotationsDiffBaseStorage()``."""

    consistency_timeout: float = setting(5.0, SECONDS)
    """Seconds to wait for the operator's own change to arrive in the watch; default: 5. 0: do not wait."""

    write_delay: float = setting(0.1, SECONDS)
    """Seconds after its end within which the progress of a handler is stored; default: 0.1. Handlers that end meanwhile
    are stored with it."""

    digested_fields: Mapping[str, Iterable[Any]] = setting({}, DIGESTED_FIELDS)
    """Fields of which only digests are stored in the last-handled configuration, by the names of kinds as in CRDs:
    ``{"databases.example.com": ["spec.password"]}``; default: ``data`` and ``stringData`` of ``secrets``. These are
    added to whatever is assigned, unless it has ``secrets``. See docs/state.md."""

    digest_key: str | None = setting(None, TEXT.or_none(), secret=True)
    """A secret for the digests of ``digested_fields``, so that nobody can guess short values from these; default: None.
    With another key, each object with such fields counts as changed once."""

    field_manager: str = setting("trioperator", FIELD_MANAGER)
    """The operator's name as a field manager in what handlers write with their ``client``, as ``kubectl get
    --show-managed-fields`` shows it; default: "trioperator". Operators that apply parts of the same objects need
    different names."""

    owner_labels: Collection[str] = setting((), OWNER_LABELS)
    """Names of the labels that children get from their owners, when they are written by the ``client`` or a reconcile
    handler, such as ``["team"]``; default: none. Users who may write the owner choose the values. Labels of Kubernetes,
    such as "app.kubernetes.io/name", cannot be among them."""


@section
class BackgroundSettings(Section):
    """Settings of daemons and timers: see docs/settings.md. All times are in seconds."""

    _path: ClassVar[str] = "settings.background"

    cancellation_polling: float = setting(60, TIMEOUT)
    """Seconds between messages that a stopped daemon without ``cancellation_timeout=`` still runs; default: 60."""

    max_threads: int = setting(1000, COUNT)
    """Number of sync daemons that run at the same time, each in a thread; default: 1000. Others wait, with an error in
    the log."""

    exit_timeout: float = setting(5.0, SECONDS)
    """Seconds until daemons without ``cancellation_timeout=``, and timers, are cancelled when the operator stops;
    default: 5."""

    spread: float = setting(10.0, SECONDS)
    """Seconds over which the first calls of timers are spread for objects that exist when the operator starts, or their
    interval if that is shorter; default: 10. 0: do not spread."""


def _section(kind: type[Section]) -> Any:
    rule = Rule(f"of the class {kind.__name__}", lambda value: isinstance(value, kind))
    return dataclasses.field(default_factory=kind, metadata={"rule": rule})


@section
class OperatorSettings(Section):
    """Settings of one operator, in sections.

    ::

        @trioperator.on.startup()
        def configure(settings: trioperator.OperatorSettings, **_):
            settings.queueing.worker_limit = 20
            settings.watching.server_timeout = 600

    - ``process``: stopping
    - ``watching``: list and watch requests
    - ``queueing`` (Kopf's old name: ``batching``): the work queue
    - ``scanning``: discovery of namespaces and resource kinds
    - ``execution``: calls of handlers
    - ``networking``: single requests
    - ``persistence``: what is stored on objects
    - ``background``: daemons and timers
    - ``pausing``: pauses of single objects, and requests to reconcile them
    - ``crds``: the CRDs of kinds that classes declare
    - ``contention``: fields that are written repeatedly
    - ``leadership``: leader election by a Lease
    - ``peering``: peering with other operators
    - ``posting``: Kubernetes Events
    - ``admission``: admission and conversion webhooks

    Assigning an invalid value raises ConfigError, an unknown name AttributeError. All times are in seconds. See
    docs/settings.md.
    """

    # Whether sub-handlers see what is in the patches of their parents, as in Kopf.
    inherit_patches: ClassVar[bool] = False
    # Whether of daemons and timers with the same id, one runs for an object, and of indices, one has its values.
    share_ids: ClassVar[bool] = False

    _path: ClassVar[str] = "settings"

    process: ProcessSettings = _section(ProcessSettings)
    posting: PostingSettings = _section(PostingSettings)
    peering: PeeringSettings = _section(PeeringSettings)
    leadership: LeadershipSettings = _section(LeadershipSettings)
    watching: WatchingSettings = _section(WatchingSettings)
    queueing: QueueingSettings = _section(QueueingSettings)
    scanning: ScanningSettings = _section(ScanningSettings)
    admission: AdmissionSettings = _section(AdmissionSettings)
    execution: ExecutionSettings = _section(ExecutionSettings)
    networking: NetworkingSettings = _section(NetworkingSettings)
    persistence: PersistenceSettings = _section(PersistenceSettings)
    background: BackgroundSettings = _section(BackgroundSettings)
    pausing: PausingSettings = _section(PausingSettings)
    crds: CrdsSettings = _section(CrdsSettings)
    contention: ContentionSettings = _section(ContentionSettings)

    def copy(self) -> OperatorSettings:
        """Return a copy of the settings. Values such as storages are shared."""
        sections = {field.name: dataclasses.replace(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **sections)

    @property
    def batching(self) -> QueueingSettings:
        """Kopf's old name of ``queueing``."""
        return self.queueing

    @batching.setter
    def batching(self, value: QueueingSettings) -> None:
        self.queueing = value
