"""A framework for Kubernetes operators on Trio.

Handlers are functions with decorators of :mod:`trioperator.on`. Run an operator with the command ``trioperator run``,
with :func:`run`, or by awaiting :func:`operator`. Names and meanings are those of Kopf: ``import trioperator as kopf``.

General layout; rooms with an underscore are private:

- on, errors, client, crds, helpers, settings, testing, apiserver, kopf: what users import
- cli: the commands; _tooling: what they compute
- _supervisor: the life of one operator: its options, its task tree, its signals, its shutdown
- _endpoints, _webhooks: what it serves about itself, and what it serves to the API server
- _telemetry, _coordination, _reconciling, _recorder: metrics; leases, peers, shards; children; Kubernetes Events
- _runtime: a watch event becomes a reconcile becomes a patch
- _handling: what users' functions mean, without a cluster
- _kube, _http: how to talk to the API server; connections, listeners, servers
- _concurrency, _logs, _model: tools for Trio; logging; frozen data and pure functions
"""

from typing import TYPE_CHECKING

from trioperator import on
from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.threads import run_in_thread, time_passes
from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.indexing import Index, Store
from trioperator._handling.arguments.stopping import AsyncDaemonStopped as AsyncDaemonStopperChecker
from trioperator._handling.arguments.stopping import DaemonStopped, DaemonStoppingReason
from trioperator._handling.arguments.stopping import SyncDaemonStopped as SyncDaemonStopperChecker
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator._handling.declaring.subhandlers import execute
from trioperator._handling.handlers import lifecycles
from trioperator._handling.handlers.children import Child, Owned, Requeue
from trioperator._handling.handlers.filters import ABSENT, PRESENT, all_, any_, none_, not_
from trioperator._handling.handlers.handler import ErrorsMode, HandlerId, Reason
from trioperator._handling.handlers.lifecycles import get_default_lifecycle, set_default_lifecycle
from trioperator._handling.reviews.admission import Headers, Operation, SSLPeer, UserInfo
from trioperator._handling.reviews.webhook_configuration import (
    WebhookClientConfig,
    WebhookClientConfigService,
    WebhookFn,
    WebhookServerProtocol,
)
from trioperator._handling.storages.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._logs import LocalObjectLogger, LogFormat, Logger, ObjectLogger, configure, set_log_processors
from trioperator._model.body import Annotations, Body, BodyEssence, Labels, Meta, Spec, Status
from trioperator._model.diff import Diff, DiffItem, DiffOperation
from trioperator._model.fields import FieldPath, FieldSpec
from trioperator._model.jsontypes import RawBody, RawEvent, RawEventType
from trioperator._model.memo import Memo
from trioperator._model.patch import Patch, PatchFn
from trioperator._model.references import (
    ObjectReference,
    OwnerReference,
    build_object_reference,
    build_owner_reference,
)
from trioperator._model.resource import EVERYTHING, Resource
from trioperator._supervisor.app import operator, run
from trioperator._version import __version__
from trioperator.errors import (
    ActivityError,
    AdmissionError,
    ApiError,
    ConfigError,
    ConflictError,
    ConnectionLostError,
    DecodeError,
    ExpiredError,
    ForbiddenError,
    ForeignChildError,
    HandlerRetriesError,
    HandlerTimeoutError,
    InvalidError,
    LoginError,
    NotFoundError,
    PausedError,
    PermanentError,
    ReviewError,
    ServerError,
    TemporaryError,
    TooManyRequestsError,
    TrioperatorError,
    UnauthorizedError,
    UserCodeError,
)
from trioperator.helpers.events import event, exception, info, warn
from trioperator.helpers.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from trioperator.on import daemon, index, register, subhandler, timer
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator._endpoints.live_view.app import live_view_app
    from trioperator._webhooks.server import WebhookServer
    from trioperator._webhooks.server_variants import (
        WebhookAutoServer,
        WebhookDockerDesktopServer,
        WebhookK3dServer,
        WebhookMinikubeServer,
    )
    from trioperator._webhooks.tunnels import WebhookAutoTunnel, WebhookNgrokTunnel
    from trioperator._webhooks.webhooks_app import webhooks_app
    from trioperator.client import Client, ObjectEvent, SyncClient, open_client
    from trioperator.helpers.logins import (
        login_via_async_client,
        login_via_client,
        login_via_kr8s,
        login_via_pykube,
        login_with_kubeconfig,
        login_with_service_account,
    )

__all__ = [
    "ABSENT",
    "EVERYTHING",
    "PRESENT",
    "ActivityError",
    "AdmissionError",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "ApiError",
    "AsyncDaemonStopperChecker",
    "Body",
    "BodyEssence",
    "Child",
    "Client",
    "Conditions",
    "ConfigError",
    "ConflictError",
    "ConnectionInfo",
    "ConnectionLostError",
    "DaemonStopped",
    "DaemonStoppingReason",
    "DecodeError",
    "Diff",
    "DiffBaseStorage",
    "DiffItem",
    "DiffOperation",
    "ErrorsMode",
    "ExpiredError",
    "FieldPath",
    "FieldSpec",
    "ForbiddenError",
    "ForeignChildError",
    "HandlerId",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Headers",
    "Index",
    "InvalidError",
    "Labels",
    "LocalObjectLogger",
    "LogFormat",
    "Logger",
    "LoginError",
    "Memo",
    "Meta",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "NotFoundError",
    "ObjectEvent",
    "ObjectLogger",
    "ObjectReference",
    "Operation",
    "OperatorRegistry",
    "OperatorSettings",
    "Owned",
    "OwnerReference",
    "Patch",
    "PatchFn",
    "PausedError",
    "PermanentError",
    "ProgressRecord",
    "ProgressStorage",
    "RawBody",
    "RawEvent",
    "RawEventType",
    "Reason",
    "Requeue",
    "Resource",
    "ReviewError",
    "SSLPeer",
    "ServerError",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "Store",
    "SyncClient",
    "SyncDaemonStopperChecker",
    "TemporaryError",
    "TooManyRequestsError",
    "TrioperatorError",
    "UnauthorizedError",
    "UserCodeError",
    "UserInfo",
    "WebhookAutoServer",
    "WebhookAutoTunnel",
    "WebhookClientConfig",
    "WebhookClientConfigService",
    "WebhookDockerDesktopServer",
    "WebhookFn",
    "WebhookK3dServer",
    "WebhookMinikubeServer",
    "WebhookNgrokTunnel",
    "WebhookServer",
    "WebhookServerProtocol",
    "__version__",
    "adjust_namespace",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "build_object_reference",
    "build_owner_reference",
    "configure",
    "daemon",
    "event",
    "exception",
    "execute",
    "get_default_lifecycle",
    "get_default_registry",
    "harmonize_naming",
    "index",
    "info",
    "label",
    "lifecycles",
    "live_view_app",
    "login_via_async_client",
    "login_via_client",
    "login_via_kr8s",
    "login_via_pykube",
    "login_with_kubeconfig",
    "login_with_service_account",
    "none_",
    "not_",
    "on",
    "open_client",
    "operator",
    "register",
    "remove_owner_reference",
    "run",
    "run_in_thread",
    "set_default_lifecycle",
    "set_default_registry",
    "set_log_processors",
    "subhandler",
    "time_passes",
    "timer",
    "wall_now",
    "warn",
    "webhooks_app",
]

# What only some programs use, by the module that has it: all of these together take a third of the time of the import.
_LAZY = {
    **dict.fromkeys(("Client", "ObjectEvent", "SyncClient", "open_client"), "client"),
    **dict.fromkeys(
        (
            "login_via_async_client",
            "login_via_client",
            "login_via_kr8s",
            "login_via_pykube",
            "login_with_kubeconfig",
            "login_with_service_account",
        ),
        "helpers.logins",
    ),
    **dict.fromkeys(
        (
            "WebhookAutoServer",
            "WebhookDockerDesktopServer",
            "WebhookK3dServer",
            "WebhookMinikubeServer",
        ),
        "_webhooks.server_variants",
    ),
    "WebhookServer": "_webhooks.server",
    "live_view_app": "_endpoints.live_view.app",
    "webhooks_app": "_webhooks.webhooks_app",
    **dict.fromkeys(("WebhookAutoTunnel", "WebhookNgrokTunnel"), "_webhooks.tunnels"),
}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        import importlib

        if name == "client":
            return importlib.import_module("trioperator.client")
        if name in _LAZY:
            value = getattr(importlib.import_module(f"trioperator.{_LAZY[name]}"), name)
            globals()[name] = value
            return value
        from trioperator._kopf_names import explain_missing

        raise AttributeError(explain_missing(__name__, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
