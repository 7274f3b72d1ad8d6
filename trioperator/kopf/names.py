"""The modules that ``import kopf`` gets: the names of trioperator, except where asyncio makes a difference."""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict

import trioperator
from trioperator import on
from trioperator._handling.declaring import subhandlers
from trioperator.kopf import running, storages
from trioperator.kopf.bridge import adapt, current_loop, is_in_asyncio
from trioperator.kopf.settings import OperatorSettings

_VERSION: Final = (1, 45, 2)


class RawBody(TypedDict, total=False):
    """Object as the API server has sent it. The class can be called: ``RawBody(metadata={…})``."""

    apiVersion: str
    kind: str
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


class UserInfo(TypedDict):
    """User of an admission request. The class can be called: ``UserInfo(username=…, uid=…, groups=[…])``."""

    username: str
    uid: str
    groups: list[str]


PatchFn = Callable[[Mapping[str, Any]], None]


class AiohttpSession:
    """Result of Kopf's login handlers that trioperator cannot use, for annotations. Raises LoginError when called."""

    def __init__(self, *_: object, **__: object) -> None:
        raise trioperator.LoginError(
            "kopf.AiohttpSession cannot be used here, as requests are not sent by aiohttp: return a kopf.ConnectionInfo"
            " from the login handler."
        )


async def execute(*, fns: object = None, **options: Any) -> None:
    """Call sub-handlers now; see ``trioperator.execute()``. *fns* may be asyncio functions."""
    if isinstance(fns, Mapping):
        fns = {name: adapt(fn) for name, fn in fns.items()}
    elif isinstance(fns, Iterable):
        fns = [adapt(fn) for fn in fns]
    call = functools.partial(subhandlers.execute, fns=fns, **options)  # type: ignore[arg-type]  # checked there
    if is_in_asyncio():
        await current_loop.get().start(functools.partial(_execute_aside, call))
    else:
        await call()


async def _execute_aside(call: Callable[[], Any]) -> None:
    """Call sub-handlers in another task, which the handler's task awaits through asyncio."""
    with subhandlers.running_subhandlers("execute").joined():
        await call()


async def login_via_async_client(**kwargs: Any) -> Any:
    """Return the connection of ``kubernetes_asyncio``; see ``trioperator.login_via_async_client()``."""
    call = functools.partial(trioperator.login_via_async_client, **kwargs)
    return await (current_loop.get().start(call) if is_in_asyncio() else call())


def _adapting(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator with arguments that registers asyncio functions."""

    @functools.wraps(decorator)
    def decorate_with(*args: Any, **options: Any) -> Callable[..., Any]:
        if isinstance(options.get("backoff"), str):  # of an environment variable: Kopf looks at it after an exception
            with contextlib.suppress(ValueError):
                options["backoff"] = float(options["backoff"])
        decorate = decorator(*args, **options)

        def register_asyncio(fn: Any) -> Any:
            decorate(adapt(fn))
            return fn

        return register_asyncio

    return decorate_with


@functools.wraps(on.register)
def _register(fn: Any, **options: Any) -> Any:
    on.register(adapt(fn), **options)
    return fn


@functools.cache
def make_modules() -> Mapping[str, types.ModuleType]:
    """Return Kopf's public modules by their names: the same ones each time."""
    modules = {
        "kopf": types.ModuleType("kopf", __doc__),
        "kopf.on": types.ModuleType("kopf.on", on.__doc__),
        "kopf.testing": types.ModuleType("kopf.testing", "Kopf's runner of operators, for tests."),
        "kopf.cli": types.ModuleType("kopf.cli", "Kopf's command."),
    }
    decorators = {name: _adapting(getattr(on, name)) for name in on.__all__ if name != "register"}
    _fill(modules["kopf.on"], {**decorators, "register": _register})
    _fill_lazily(modules["kopf.testing"], KopfRunner="trioperator.kopf.testing")
    _fill_lazily(
        modules["kopf.cli"],
        CLIControls="trioperator.cli",
        LogFormatParamType="trioperator.cli",
        main="trioperator.kopf.command",
    )
    top = modules["kopf"]
    _fill(top, {**_own_names(), "on": modules["kopf.on"], **{n: getattr(modules["kopf.on"], n) for n in _TOP_LEVEL}})
    public = sorted({*trioperator.__all__, *vars(top)} - _HIDDEN - set(dir(types.ModuleType("x"))))
    vars(top).update(__all__=public, __getattr__=_find, __dir__=lambda: sorted({*vars(top), *public}))
    return modules


def _find(name: str) -> Any:
    """Return the value of a name in ``kopf`` that only some operators need, or that is the same as in trioperator."""
    if name in _PRIVATE_PACKAGES:
        return importlib.import_module(f"kopf.{name}")
    if not name.startswith("Webhook"):
        return getattr(trioperator, name)
    from trioperator.kopf import servers

    return getattr(servers, name) if name in servers.NAMES else getattr(trioperator, name)


_TOP_LEVEL: Final = ("daemon", "index", "register", "subhandler", "timer")
_PRIVATE_PACKAGES: Final = frozenset({"_cogs", "_core", "_kits"})
_HIDDEN: Final = frozenset({"__version__", "__version_tuple__", "__commit_id__"})


def _own_names() -> dict[str, Any]:
    """Return the names of ``kopf`` that differ from trioperator's."""
    return {
        **{name: getattr(storages, name) for name in storages.__all__ if name != "FINALIZER"},
        **{
            name: getattr(running, name)
            for name in ("get_default_lifecycle", "operator", "run", "run_tasks", "spawn_tasks")
        },
        "AiohttpSession": AiohttpSession,
        "OperatorSettings": OperatorSettings,
        "PatchFn": PatchFn,
        "RawBody": RawBody,
        "UserInfo": UserInfo,
        "execute": execute,
        "login_via_async_client": login_via_async_client,
        "__version__": ".".join(map(str, _VERSION)),
        "__version_tuple__": _VERSION,
        "__commit_id__": None,
    }


def _fill(module: types.ModuleType, names: Mapping[str, Any]) -> None:
    vars(module).update(names, __all__=sorted(names))


def _fill_lazily(module: types.ModuleType, **homes: str) -> None:
    """Add names to a module whose home modules are loaded on first use: few operators need them."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    vars(module).update(__all__=sorted(homes), __getattr__=find)
