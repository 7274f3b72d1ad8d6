"""Names, settings and private modules of Kopf: where they are here, and error messages for those that are missing."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

#: Settings of Kopf's that have no meaning here, by sections: their defaults, and what there is for their purpose.
SETTINGS_WITHOUT_EFFECT: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "process": ({"ultimate_exiting_timeout": 600.0}, "settings.process.grace limits how long stopping takes."),
    "posting": ({"worker_limit": None, "idle_timeout": 1.0}, "events are posted by one task."),
    "peering": ({"clusterwide": False, "namespaced": True}, "peering is cluster-wide if the operator is."),
    "queueing": (
        {"idle_timeout": 5.0, "exit_timeout": 2.0},
        "objects that are not handled occupy no workers.",
    ),
    "background": (
        {"instant_exit_timeout": None, "instant_exit_zero_time_cycles": 10},
        "the end of a daemon is noticed at once.",
    ),
}

_NURSERY: Final = "does not exist, as operators run in nurseries: await nursery.start(trioperator.operator)."
_MISSING: Final = {
    "AiohttpSession": "does not exist, as requests are sent by Trio: return a ConnectionInfo, or pass transport=.",
    "KopfRunner": "does not exist here, as in Kopf: from trioperator.testing import KopfRunner.",
    "run_tasks": _NURSERY,
    "spawn_tasks": _NURSERY,
}


def explain_missing(module: str, name: str) -> str:
    """Return the message of the AttributeError for a name that a module does not have."""
    if name in _MISSING:
        return f"Kopf's {name} {_MISSING[name]}"
    return f"module {module!r} has no attribute {name!r}"


# The names of private modules that are public in ``kopf``.
PUBLIC: Final[Mapping[str, str]] = {
    "_cogs.configs.configuration": "OperatorSettings",
    "_cogs.configs.diffbase": ("AnnotationsDiffBaseStorage DiffBaseStorage MultiDiffBaseStorage StatusDiffBaseStorage"),
    "_cogs.configs.progress": (
        "AnnotationsProgressStorage MultiProgressStorage ProgressRecord ProgressStorage SmartProgressStorage"
        " StatusProgressStorage"
    ),
    "_cogs.helpers.typedefs": "Logger",
    "_cogs.helpers.versions": "__version__ __version_tuple__",
    "_cogs.structs.bodies": (
        "Annotations Body BodyEssence Labels Meta ObjectReference OwnerReference RawBody RawEvent RawEventType Spec"
        " Status build_object_reference build_owner_reference"
    ),
    "_cogs.structs.credentials": "AiohttpSession ConnectionInfo LoginError",
    "_cogs.structs.dicts": "FieldPath FieldSpec",
    "_cogs.structs.diffs": "Diff DiffItem DiffOperation",
    "_cogs.structs.ephemera": "Index Memo Store",
    "_cogs.structs.ids": "HandlerId",
    "_cogs.structs.patches": "Patch PatchFn",
    "_cogs.structs.references": "EVERYTHING Resource",
    "_cogs.structs.reviews": (
        "Headers Operation SSLPeer UserInfo WebhookClientConfig WebhookClientConfigService WebhookFn"
        " WebhookServerProtocol"
    ),
    "_core.actions.execution": ("ErrorsMode HandlerRetriesError HandlerTimeoutError PermanentError TemporaryError"),
    "_core.actions.lifecycles": "get_default_lifecycle set_default_lifecycle",
    "_core.actions.loggers": "LocalObjectLogger LogFormat ObjectLogger configure",
    "_core.engines.admission": "AdmissionError",
    "_core.engines.indexing": "Index Store",
    "_core.engines.posting": "event exception info warn",
    "_core.intents.callbacks": "WebhookFn all_ any_ none_ not_",
    "_core.intents.causes": "Reason",
    "_core.intents.filters": "ABSENT PRESENT",
    "_core.intents.piggybacking": (
        "login_via_async_client login_via_client login_via_pykube login_with_kubeconfig login_with_service_account"
    ),
    "_core.intents.registries": "OperatorRegistry get_default_registry set_default_registry",
    "_core.intents.stoppers": ("AsyncDaemonStopperChecker DaemonStopped DaemonStoppingReason SyncDaemonStopperChecker"),
    "_core.reactor.running": "operator run run_tasks spawn_tasks",
    "_core.reactor.subhandling": "execute",
    "_kits.hierarchies": (
        "adjust_namespace adopt append_owner_reference harmonize_naming label remove_owner_reference"
    ),
    "_kits.runner": "",
    "_kits.webhooks": (
        "WebhookAutoServer WebhookAutoTunnel WebhookDockerDesktopServer WebhookK3dServer WebhookMinikubeServer"
        " WebhookNgrokTunnel WebhookServer"
    ),
}
_SETTINGS: Final = (
    "AdmissionSettings BackgroundSettings ExecutionSettings NetworkingSettings PeeringSettings PersistenceSettings"
    " PostingSettings ProcessSettings QueueingSettings ScanningSettings WatchingSettings"
)
_LIFECYCLES: Final = "all_at_once asap one_by_one randomized shuffled"
_FUNCTIONS: Final = "ActivityFn ChangingFn DaemonFn DelayFn IndexingFn MetaFilterFn TimerFn WatchingFn WhenFilterFn"
# Other names of private modules, and where they are here: types for annotations, and merged classes.
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "_cogs.configs.configuration": {name: f"trioperator.settings:{name}" for name in _SETTINGS.split()},
    "_cogs.structs.bodies": dict.fromkeys(("MetaEssence", "RawError", "RawInput", "RawMeta"), "builtins:dict"),
    "_cogs.structs.diffs": {"diff": "trioperator._model.diff:diff"},
    "_cogs.structs.ephemera": {"AnyMemo": "typing:Any"},
    "_cogs.structs.references": {
        "Marker": "trioperator._model.resource:Marker",
        "NamespaceName": "builtins:str",
        "Selector": "trioperator._model.resource:Selector",
    },
    "_core.actions.execution": {
        "LifeCycleFn": "trioperator._handling.handlers.lifecycles:Lifecycle",
        "Logger": "trioperator:Logger",
    },
    "_core.actions.lifecycles": {
        name: f"trioperator._handling.handlers.lifecycles:{name}" for name in _LIFECYCLES.split()
    },
    "_core.engines.indexing": {"OperatorIndexers": "trioperator.kopf.indexers:OperatorIndexers"},
    "_core.engines.posting": {"event_queue_var": "trioperator.kopf.posting:event_queue_var"},
    "_core.intents.callbacks": dict.fromkeys(_FUNCTIONS.split(), "collections.abc:Callable"),
    "_core.intents.registries": {"SmartOperatorRegistry": "trioperator:OperatorRegistry"},
    "_kits.runner": {"KopfRunner": "trioperator.kopf.testing:KopfRunner"},
}
# The modules of Kopf until 1.28, by what they begin with.
FORMER: Final[Mapping[str, str]] = {
    "engines.logging": "_core.actions.loggers",
    "engines.posting": "_core.engines.posting",
    "reactor.callbacks": "_core.intents.callbacks",
    "reactor.handling": "_core.actions.execution",
    "reactor.lifecycles": "_core.actions.lifecycles",
    "reactor.registries": "_core.intents.registries",
    "reactor.running": "_core.reactor.running",
    "storage.diffbase": "_cogs.configs.diffbase",
    "storage.progress": "_cogs.configs.progress",
    "structs.bodies": "_cogs.structs.bodies",
    "structs.callbacks": "_core.intents.callbacks",
    "structs.configuration": "_cogs.configs.configuration",
    "structs.credentials": "_cogs.structs.credentials",
    "structs.dicts": "_cogs.structs.dicts",
    "structs.diffs": "_cogs.structs.diffs",
    "structs.filters": "_core.intents.filters",
    "structs.ids": "_cogs.structs.ids",
    "structs.patches": "_cogs.structs.patches",
    "structs.references": "_cogs.structs.references",
    "structs.reviews": "_cogs.structs.reviews",
    "toolkits.hierarchies": "_kits.hierarchies",
    "toolkits.runner": "_kits.runner",
    "toolkits.webhooks": "_kits.webhooks",
}
# Replacements of names and modules that do not exist here, by their beginnings.
_INSTEAD: Final[Mapping[str, str]] = {
    "_cogs.aiokits": "asyncio's own functions",
    "_cogs.clients": "a client library for Kubernetes, or trioperator.open_client(),",
    "_core.engines.admission.build_webhooks": "settings.admission.managed, or webhook servers of your own,",
    "_core.engines.indexing": "@kopf.index, whose indices are arguments of handlers,",
    "_core.engines.posting": "kopf.event(), kopf.info(), kopf.warn() and kopf.exception()",
    "_core.engines.peering": "the options of peering, or trioperator.settings.PeeringSettings,",
    "_core.reactor": "kopf.operator() or kopf.run()",
    "_core.actions.loggers": "kopf.configure(), and formatters of the module logging,",
    "_core.actions.execution": "kopf.execute(), the arguments of handlers and KopfRunner",
    "_core.actions.invocation": "kopf.execute(), the arguments of handlers and KopfRunner",
    "_core.intents.causes": "kopf.Reason and the arguments of handlers",
    "_core.intents.handlers": "the decorators of kopf and kopf.on, and an OperatorRegistry, which has the handlers,",
    "clients": "a client library for Kubernetes, or trioperator.open_client(),",
}
_DEFAULT: Final = "the public names of kopf, kopf.on, kopf.testing and kopf.cli"


def has_module(name: str) -> bool:
    """Return whether there is a private module or package of the full name, such as ``kopf._cogs.structs``."""
    path = name.removeprefix("kopf.")
    return path in PUBLIC or path in FORMER or is_package(name)


def is_package(name: str) -> bool:
    """Return whether a private module has others in it, and nothing else."""
    return name.removeprefix("kopf.") in _packages()


def find_place(module: str, name: str) -> str | None:
    """Return where a name of a private module is here, such as ``kopf:Body``; None if it is nowhere."""
    path = module.removeprefix("kopf.")
    path = FORMER.get(path, path)
    if name in PUBLIC.get(path, "").split():
        return f"kopf:{name}"
    return _ELSEWHERE.get(path, {}).get(name)


def describe_missing(name: str) -> str:
    """Return what to say of a private module or name that does not exist here, by its full name."""
    path = name.removeprefix("kopf.")
    path = next((path.replace(old, new, 1) for old, new in FORMER.items() if path.startswith(f"{old}.")), path)
    found = (text for known, text in _INSTEAD.items() if f"{path}.".startswith(f"{known}."))
    return (
        f"{name} does not exist here, where trioperator takes the place of Kopf: use {next(found, _DEFAULT)} instead."
    )


@functools.cache
def _packages() -> frozenset[str]:
    """Return the names of the packages of all modules."""
    parts = [path.split(".") for path in (*PUBLIC, *FORMER)]
    return frozenset(".".join(each[:end]) for each in parts for end in range(1, len(each)))
