"""A framework for Kubernetes operators on Trio.

Handlers are functions with decorators of :mod:`trioperator.on`. Run an operator with the command ``trioperator run``,
with :func:`run`, or by awaiting :func:`operator`. Names and meanings are Kopf's: ``import trioperator as kopf``.

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

import itertools
from typing import TYPE_CHECKING

from trioperator import on as on
from trioperator._concurrency.clock import wall_now as wall_now
from trioperator._concurrency.threads import run_in_thread as run_in_thread
from trioperator._concurrency.threads import time_passes as time_passes
from trioperator._handling.arguments.conditions import Conditions as Conditions
from trioperator._handling.arguments.indexing import Index as Index
from trioperator._handling.arguments.indexing import Store as Store
from trioperator._handling.arguments.stopping import AsyncDaemonStopperChecker as AsyncDaemonStopperChecker
from trioperator._handling.arguments.stopping import DaemonStopped as DaemonStopped
from trioperator._handling.arguments.stopping import DaemonStoppingReason as DaemonStoppingReason
from trioperator._handling.arguments.stopping import SyncDaemonStopperChecker as SyncDaemonStopperChecker
from trioperator._handling.declaring.registry import OperatorRegistry as OperatorRegistry
from trioperator._handling.declaring.registry import get_default_registry as get_default_registry
from trioperator._handling.declaring.registry import set_default_registry as set_default_registry
from trioperator._handling.declaring.subhandlers import execute as execute
from trioperator._handling.handlers import lifecycles as lifecycles
from trioperator._handling.handlers.children import Child as Child
from trioperator._handling.handlers.children import Owned as Owned
from trioperator._handling.handlers.children import Requeue as Requeue
from trioperator._handling.handlers.filters import ABSENT as ABSENT
from trioperator._handling.handlers.filters import PRESENT as PRESENT
from trioperator._handling.handlers.filters import all_ as all_
from trioperator._handling.handlers.filters import any_ as any_
from trioperator._handling.handlers.filters import none_ as none_
from trioperator._handling.handlers.filters import not_ as not_
from trioperator._handling.handlers.handler import ErrorsMode as ErrorsMode
from trioperator._handling.handlers.handler import HandlerId as HandlerId
from trioperator._handling.handlers.handler import Reason as Reason
from trioperator._handling.handlers.lifecycles import get_default_lifecycle as get_default_lifecycle
from trioperator._handling.handlers.lifecycles import set_default_lifecycle as set_default_lifecycle
from trioperator._handling.reviews.admission import Headers as Headers
from trioperator._handling.reviews.admission import Operation as Operation
from trioperator._handling.reviews.admission import SSLPeer as SSLPeer
from trioperator._handling.reviews.admission import UserInfo as UserInfo
from trioperator._handling.reviews.webhook_configuration import WebhookClientConfig as WebhookClientConfig
from trioperator._handling.reviews.webhook_configuration import WebhookClientConfigService as WebhookClientConfigService
from trioperator._handling.reviews.webhook_configuration import WebhookFn as WebhookFn
from trioperator._handling.reviews.webhook_configuration import WebhookServerProtocol as WebhookServerProtocol
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage as AnnotationsDiffBaseStorage
from trioperator._handling.storages.diffbase import DiffBaseStorage as DiffBaseStorage
from trioperator._handling.storages.diffbase import MultiDiffBaseStorage as MultiDiffBaseStorage
from trioperator._handling.storages.diffbase import StatusDiffBaseStorage as StatusDiffBaseStorage
from trioperator._handling.storages.progress import AnnotationsProgressStorage as AnnotationsProgressStorage
from trioperator._handling.storages.progress import MultiProgressStorage as MultiProgressStorage
from trioperator._handling.storages.progress import ProgressRecord as ProgressRecord
from trioperator._handling.storages.progress import ProgressStorage as ProgressStorage
from trioperator._handling.storages.progress import SmartProgressStorage as SmartProgressStorage
from trioperator._handling.storages.progress import StatusProgressStorage as StatusProgressStorage
from trioperator._kube.connection_info import ConnectionInfo as ConnectionInfo
from trioperator._logs import LocalObjectLogger as LocalObjectLogger
from trioperator._logs import LogFormat as LogFormat
from trioperator._logs import Logger as Logger
from trioperator._logs import ObjectLogger as ObjectLogger
from trioperator._logs import configure as configure
from trioperator._logs import set_log_processors as set_log_processors
from trioperator._model.body import Annotations as Annotations
from trioperator._model.body import Body as Body
from trioperator._model.body import BodyEssence as BodyEssence
from trioperator._model.body import Labels as Labels
from trioperator._model.body import Meta as Meta
from trioperator._model.body import Spec as Spec
from trioperator._model.body import Status as Status
from trioperator._model.diff import Diff as Diff
from trioperator._model.diff import DiffItem as DiffItem
from trioperator._model.diff import DiffOperation as DiffOperation
from trioperator._model.fields import FieldPath as FieldPath
from trioperator._model.fields import FieldSpec as FieldSpec
from trioperator._model.jsontypes import RawBody as RawBody
from trioperator._model.jsontypes import RawEvent as RawEvent
from trioperator._model.jsontypes import RawEventType as RawEventType
from trioperator._model.memo import Memo as Memo
from trioperator._model.patch import Patch as Patch
from trioperator._model.patch import PatchFn as PatchFn
from trioperator._model.references import ObjectReference as ObjectReference
from trioperator._model.references import OwnerReference as OwnerReference
from trioperator._model.references import build_object_reference as build_object_reference
from trioperator._model.references import build_owner_reference as build_owner_reference
from trioperator._model.resource import EVERYTHING as EVERYTHING
from trioperator._model.resource import Resource as Resource
from trioperator._supervisor.app import operator as operator
from trioperator._supervisor.app import run as run
from trioperator._version import __version__ as __version__
from trioperator.errors import ActivityError as ActivityError
from trioperator.errors import AdmissionError as AdmissionError
from trioperator.errors import ApiError as ApiError
from trioperator.errors import ConfigError as ConfigError
from trioperator.errors import ConflictError as ConflictError
from trioperator.errors import ConnectionLostError as ConnectionLostError
from trioperator.errors import DecodeError as DecodeError
from trioperator.errors import ExpiredError as ExpiredError
from trioperator.errors import ForbiddenError as ForbiddenError
from trioperator.errors import ForeignChildError as ForeignChildError
from trioperator.errors import HandlerRetriesError as HandlerRetriesError
from trioperator.errors import HandlerTimeoutError as HandlerTimeoutError
from trioperator.errors import InvalidError as InvalidError
from trioperator.errors import LoginError as LoginError
from trioperator.errors import NotFoundError as NotFoundError
from trioperator.errors import PausedError as PausedError
from trioperator.errors import PermanentError as PermanentError
from trioperator.errors import ReviewError as ReviewError
from trioperator.errors import ServerError as ServerError
from trioperator.errors import TemporaryError as TemporaryError
from trioperator.errors import TooManyRequestsError as TooManyRequestsError
from trioperator.errors import TrioperatorError as TrioperatorError
from trioperator.errors import UnauthorizedError as UnauthorizedError
from trioperator.errors import UserCodeError as UserCodeError
from trioperator.helpers.events import event as event
from trioperator.helpers.events import exception as exception
from trioperator.helpers.events import info as info
from trioperator.helpers.events import warn as warn
from trioperator.helpers.hierarchies import adjust_namespace as adjust_namespace
from trioperator.helpers.hierarchies import adopt as adopt
from trioperator.helpers.hierarchies import append_owner_reference as append_owner_reference
from trioperator.helpers.hierarchies import harmonize_naming as harmonize_naming
from trioperator.helpers.hierarchies import label as label
from trioperator.helpers.hierarchies import remove_owner_reference as remove_owner_reference
from trioperator.on import daemon as daemon
from trioperator.on import index as index
from trioperator.on import register as register
from trioperator.on import subhandler as subhandler
from trioperator.on import timer as timer
from trioperator.settings import OperatorSettings as OperatorSettings

if TYPE_CHECKING:
    from trioperator._endpoints.live_view.app import live_view_app as live_view_app
    from trioperator._webhooks.server import WebhookServer as WebhookServer
    from trioperator._webhooks.server_variants import WebhookAutoServer as WebhookAutoServer
    from trioperator._webhooks.server_variants import WebhookDockerDesktopServer as WebhookDockerDesktopServer
    from trioperator._webhooks.server_variants import WebhookK3dServer as WebhookK3dServer
    from trioperator._webhooks.server_variants import WebhookMinikubeServer as WebhookMinikubeServer
    from trioperator._webhooks.tunnels import WebhookAutoTunnel as WebhookAutoTunnel
    from trioperator._webhooks.tunnels import WebhookNgrokTunnel as WebhookNgrokTunnel
    from trioperator._webhooks.webhooks_app import webhooks_app as webhooks_app
    from trioperator.client import Client as Client
    from trioperator.client import ObjectEvent as ObjectEvent
    from trioperator.client import SyncClient as SyncClient
    from trioperator.client import open_client as open_client
    from trioperator.helpers.logins import login_via_async_client as login_via_async_client
    from trioperator.helpers.logins import login_via_client as login_via_client
    from trioperator.helpers.logins import login_via_kr8s as login_via_kr8s
    from trioperator.helpers.logins import login_via_pykube as login_via_pykube
    from trioperator.helpers.logins import login_with_kubeconfig as login_with_kubeconfig
    from trioperator.helpers.logins import login_with_service_account as login_with_service_account

# Names that only some programs use, by their module: together they would take a third of the time of the import.
_LAZY = {
    "_endpoints.live_view.app": ("live_view_app",),
    "_webhooks.server": ("WebhookServer",),
    "_webhooks.server_variants": (
        *("WebhookAutoServer", "WebhookDockerDesktopServer"),
        *("WebhookK3dServer", "WebhookMinikubeServer"),
    ),
    "_webhooks.tunnels": ("WebhookAutoTunnel", "WebhookNgrokTunnel"),
    "_webhooks.webhooks_app": ("webhooks_app",),
    "client": ("Client", "ObjectEvent", "SyncClient", "open_client"),
    "helpers.logins": (
        *("login_via_async_client", "login_via_client", "login_via_kr8s", "login_via_pykube"),
        *("login_with_kubeconfig", "login_with_service_account"),
    ),
}

# All names that are imported here are public; of the modules, only two.
_own = {name for name, value in globals().items() if name[0] != "_" and getattr(value, "__spec__", None) is None}
__all__ = sorted({"__version__", "lifecycles", "on", *_own, *itertools.chain(*_LAZY.values())} - {"TYPE_CHECKING"})

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        import importlib

        if name == "client":
            return importlib.import_module("trioperator.client")
        for module, names in _LAZY.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(f"trioperator.{module}"), name)
                return value
        from trioperator._model.kopf_names import explain_missing

        raise AttributeError(explain_missing(__name__, name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
