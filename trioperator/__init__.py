"""A framework for Kubernetes operators on Trio.

Handlers are functions with decorators of :mod:`trioperator.on`. Run an operator with the command ``trioperator run``,
with :func:`run`, or by awaiting :func:`operator`. Names and meanings are those of Kopf: ``import trioperator as kopf``.
"""

from typing import TYPE_CHECKING

from trioperator import on
from trioperator._version import __version__
from trioperator.app import operator, run
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
from trioperator.handling import lifecycles
from trioperator.handling.admission import Headers, Operation, SSLPeer, UserInfo
from trioperator.handling.children import Child, Owned, Requeue
from trioperator.handling.conditions import Conditions
from trioperator.handling.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from trioperator.handling.filters import ABSENT, PRESENT, all_, any_, none_, not_
from trioperator.handling.handler import ErrorsMode, HandlerId, Reason
from trioperator.handling.indexing import Index, Store
from trioperator.handling.lifecycles import get_default_lifecycle, set_default_lifecycle
from trioperator.handling.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator.handling.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator.handling.stopping import AsyncDaemonStopped as AsyncDaemonStopperChecker
from trioperator.handling.stopping import DaemonStopped, DaemonStoppingReason
from trioperator.handling.stopping import SyncDaemonStopped as SyncDaemonStopperChecker
from trioperator.handling.subhandlers import execute
from trioperator.handling.webhook_configuration import (
    WebhookClientConfig,
    WebhookClientConfigService,
    WebhookFn,
    WebhookServerProtocol,
)
from trioperator.kits.events import event, exception, info, warn
from trioperator.kits.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    harmonize_naming,
    label,
    remove_owner_reference,
)
from trioperator.kube.connection_info import ConnectionInfo
from trioperator.logs import LocalObjectLogger, LogFormat, Logger, ObjectLogger, configure, set_log_processors
from trioperator.model.body import Annotations, Body, BodyEssence, Labels, Meta, Spec, Status
from trioperator.model.diff import Diff, DiffItem, DiffOperation
from trioperator.model.fields import FieldPath, FieldSpec
from trioperator.model.jsontypes import RawBody, RawEvent, RawEventType
from trioperator.model.memo import Memo
from trioperator.model.patch import Patch, PatchFn
from trioperator.model.references import (
    ObjectReference,
    OwnerReference,
    build_object_reference,
    build_owner_reference,
)
from trioperator.model.resource import EVERYTHING, Resource
from trioperator.on import daemon, index, register, subhandler, timer
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator.client import Client, ObjectEvent, SyncClient, open_client
    from trioperator.kits.logins import (
        login_via_async_client,
        login_via_client,
        login_via_kr8s,
        login_via_pykube,
        login_with_kubeconfig,
        login_with_service_account,
    )
    from trioperator.web.admission_server import WebhookServer
    from trioperator.web.admission_tunnels import WebhookAutoTunnel, WebhookNgrokTunnel
    from trioperator.web.admission_variants import (
        WebhookAutoServer,
        WebhookDockerDesktopServer,
        WebhookK3dServer,
        WebhookMinikubeServer,
    )
    from trioperator.web.live_view.app import live_view_app
    from trioperator.web.webhooks_app import webhooks_app

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
    "set_default_lifecycle",
    "set_default_registry",
    "set_log_processors",
    "subhandler",
    "timer",
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
        "kits.logins",
    ),
    **dict.fromkeys(
        (
            "WebhookAutoServer",
            "WebhookDockerDesktopServer",
            "WebhookK3dServer",
            "WebhookMinikubeServer",
        ),
        "web.admission_variants",
    ),
    "WebhookServer": "web.admission_server",
    "live_view_app": "web.live_view.app",
    "webhooks_app": "web.webhooks_app",
    **dict.fromkeys(("WebhookAutoTunnel", "WebhookNgrokTunnel"), "web.admission_tunnels"),
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
