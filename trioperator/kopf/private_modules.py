"""Kopf's private modules, as far as operators import them: types mostly, which are public names of other modules.

A module is made when it is imported, with a DeprecationWarning. What it does not have raises an ImportError that names
the replacement. Modules that Kopf had until 1.28 (``kopf.structs`` and others) are those that took their places.
"""

from __future__ import annotations

import functools
import importlib
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

from trioperator.handling.registry import OperatorRegistry

__all__ = ["find_module", "warn_of_import"]

# The names of private modules that are public in ``kopf``.
_PUBLIC: Final[Mapping[str, str]] = {
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
# Those that are not public in ``kopf``, with the modules and the names of what they are here.
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "_cogs.configs.configuration": dict.fromkeys(_SETTINGS.split(), "trioperator.settings"),
    "_cogs.structs.diffs": {"diff": "trioperator.model.diff"},
    "_cogs.structs.references": dict.fromkeys(("Marker", "Selector"), "trioperator.model.resource"),
    "_core.actions.execution": {"Logger": "trioperator"},
    "_core.actions.lifecycles": dict.fromkeys(_LIFECYCLES.split(), "trioperator.handling.lifecycles"),
    "_kits.runner": {"KopfRunner": "trioperator.kopf.testing"},
}
_FUNCTIONS: Final = "ActivityFn ChangingFn DaemonFn DelayFn IndexingFn MetaFilterFn TimerFn WatchingFn WhenFilterFn"
# Types for annotations only, and classes that have been merged.
_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "_cogs.structs.bodies": dict.fromkeys(("MetaEssence", "RawError", "RawInput", "RawMeta"), Mapping[str, Any]),
    "_cogs.structs.ephemera": {"AnyMemo": Any},
    "_cogs.structs.references": {"NamespaceName": str},
    "_core.actions.execution": {"LifeCycleFn": Callable[..., Any]},
    "_core.intents.callbacks": dict.fromkeys(_FUNCTIONS.split(), Callable[..., Any]),
    "_core.intents.registries": {"SmartOperatorRegistry": OperatorRegistry},
}
# The modules of Kopf until 1.28, by what they begin with.
_FORMER: Final[Mapping[str, str]] = {
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
# What to use in the place of names and modules that do not exist here, by their beginnings.
_INSTEAD: Final[Mapping[str, str]] = {
    "_cogs.aiokits": "asyncio's own functions",
    "_cogs.clients": "a client library for Kubernetes, or trioperator.open_client(),",
    "_core.engines.admission.build_webhooks": "settings.admission.managed, or webhook servers of your own,",
    "_core.engines.indexing": "@kopf.index, whose indices are arguments of handlers,",
    "_core.engines.posting": "kopf.event(), kopf.info(), kopf.warn() and kopf.exception()",
    "_core.engines.peering": "the options of peering, or trioperator.settings.PeeringSettings,",
    "_core.reactor": "kopf.operator() or kopf.run()",
    "_core.actions.loggers": "kopf.configure(), and formatters of the module logging,",
    "clients": "a client library for Kubernetes, or trioperator.open_client(),",
}
_DEFAULT: Final = "the public names of kopf, kopf.on, kopf.testing and kopf.cli"


@functools.cache
def find_module(name: str) -> types.ModuleType:
    """Return the module with a full name such as ``kopf._cogs.structs.bodies``, always the same one.

    Raises ModuleNotFoundError for a module that does not exist here.
    """
    path = name.removeprefix("kopf.")
    if path not in _PUBLIC and path not in _FORMER and path not in _packages():
        text = f"No module named {name!r} here, where trioperator takes the place of Kopf: use {_advise(path)} instead."
        raise ModuleNotFoundError(text, name=name)
    module = types.ModuleType(name, f"Names of Kopf's module {name}.")
    module.__getattr__ = functools.partial(_find, name)  # type: ignore[method-assign]
    if path in _packages():
        module.__path__ = []
    return module


def warn_of_import(name: str) -> None:
    """Warn whoever imports a private module with names in it."""
    if name.removeprefix("kopf.") not in _packages():
        text = f"{name} is private to Kopf: import its names from kopf itself, where they are public."
        warnings.warn(text, DeprecationWarning, stacklevel=3)


@functools.cache
def _packages() -> frozenset[str]:
    """Return the names of the packages of all modules."""
    parts = [path.split(".") for path in (*_PUBLIC, *_FORMER)]
    return frozenset(".".join(each[:end]) for each in parts for end in range(1, len(each)))


def _find(module: str, name: str) -> Any:
    """Return what a module has under a name. Raises ImportError, which tells more, if it has nothing."""
    if name.startswith("__") and name != "__version__" and name != "__version_tuple__":
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    path = module.removeprefix("kopf.")
    if path in _packages():
        return importlib.import_module(f"{module}.{name}")
    path = _FORMER.get(path, path)
    if name in _PUBLIC[path].split():
        from trioperator.kopf.names import make_modules

        return getattr(make_modules()["kopf"], name)
    if name in _TYPES.get(path, ()):
        return _TYPES[path][name]
    if name in _ELSEWHERE.get(path, ()):
        return getattr(importlib.import_module(_ELSEWHERE[path][name]), name)
    text = f"{module}.{name} is private to Kopf, and does not exist here: use {_advise(f'{path}.{name}')} instead."
    raise ImportError(text, name=module)


def _advise(path: str) -> str:
    found = (text for known, text in _INSTEAD.items() if f"{path}.".startswith(f"{known}."))
    return next(found, _DEFAULT)
