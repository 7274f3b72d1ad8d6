"""Entry points of operators: a function to be awaited in a Trio program, and one that runs a program."""

from __future__ import annotations

import contextlib
import copy
import re
from typing import Any, Final

import trio

from trioperator._concurrency.clock import make_clock
from trioperator._handling.arguments.context import loaded_source
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry
from trioperator._handling.handlers.lifecycles import check_lifecycle
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import SmartProgressStorage
from trioperator._http.endpoint import parse_endpoint
from trioperator._http.listener import raise_file_limit
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._logs import bound_contextvars
from trioperator._model.memo import Memo
from trioperator._model.namespaces import may_exist
from trioperator._model.signatures import takes
from trioperator._runtime.watching.scope import Scope
from trioperator._supervisor.plan import OperatorOptions, Plan
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings

_ENDPOINTS: Final = ("liveness_endpoint", "health_endpoint", "metrics_endpoint", "live_view_endpoint")
_TYPES: Final = {"name": str, "registry": OperatorRegistry, "settings": OperatorSettings, "connection": ConnectionInfo}


class _StartOptions(OperatorOptions, kw_only=True):
    """Options of :func:`operator` by ``nursery.start()``."""

    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED


@takes(_StartOptions)
async def operator(**options: Any) -> None:
    """Run an operator until it is stopped or cancelled.

    ::

        async with trio.open_nursery() as nursery:
            await nursery.start(functools.partial(trioperator.operator, namespaces=["default"]))

    ``nursery.start()`` returns when the startup handlers have succeeded and everything that can be watched is listed.
    In the main thread, SIGINT and SIGTERM stop the operator gracefully, within ``settings.process.grace`` seconds (25);
    a second signal cancels it, and ends the process if it has not ended two seconds later. Cancellation stops it at
    once; cleanup handlers are still called, within the grace period.

    - *name*: name of this operator, ``operator=`` in its logs, to tell apart several in one process; default: none
    - *registry*: registry of the handlers; default: the default registry
    - *settings*: settings of this operator, which its startup handlers may change; default: ``OperatorSettings()``
    - *memo*: ``memo`` of activities, copied with ``copy.copy()`` for each object; default: an empty ``Memo``
    - *lifecycle*: function that selects and orders handlers; default: the one of ``set_default_lifecycle()``
    - *namespaces*: list of names and patterns of the namespaces to handle; default: the whole cluster
    - *clusterwide*: handle the whole cluster, which is the default
    - *namespace*: one name or pattern, in place of *namespaces*
    - *standalone*: run without peering
    - *priority*: priority among peers; default: ``settings.peering.priority`` (0)
    - *peering_name*: name of the peering object; the operator pauses until it exists; default: "default", if it exists
    - *shards*: number of shards that all replicas of the operator share; default: ``settings.leadership.shards`` (1)
    - *identity*: name of the operator for peers and leases; default: ``$POD_ID``, or the user, the host, the time and a
      random suffix
    - *liveness_endpoint*: URL for serving probes, such as ``"http://0.0.0.0:8080/healthz"``; default: none
    - *health_endpoint*: URL below which ``/livez`` and ``/readyz`` are served, such as ``"http://0.0.0.0:8081"``;
      default: none
    - *metrics_endpoint*: URL for serving metrics; without a path, at ``/metrics``: such as ``"http://0.0.0.0:8080"``;
      default: none
    - *tracing*: create OpenTelemetry spans for watch events, reconciles, calls of handlers and requests
    - *live_view_endpoint*: URL on the loopback interface below which the live view is served, at ``/debug``, such as
      ``"http://127.0.0.1:8083"``; default: none
    - *live_view_token*: token that the live view requires, and that enables its actions: to requeue objects, and to
      cancel their handlers; default: none
    - *live_view_app*: application of :func:`trioperator.live_view_app` in which the operator is shown, in place of an
      endpoint of its own; default: none
    - *connection*: API server and credentials; default: from login handlers, if there are any, else as for kubectl, or
      from the pod's service account
    - *transport*: httpx transport for all requests, such as the embedded API server's; default: the network
    - *stop_flag*: Trio or threading event that stops the operator when it is set
    - *ready_flag*: Trio or threading event that the operator sets when it is ready
    - *handle_signals*: whether signals stop the operator; False leaves them to the program, such as pytest

    Raises RuntimeError outside of Trio; TypeError for options that conflict or have a wrong type; ConfigError for other
    wrong options, settings and handlers, and where a command such as ``trioperator check`` loads the file with the
    call; LoginError without valid credentials; ActivityError if a startup or cleanup handler has failed; ApiError or
    ConnectionLostError if the API server cannot be used at the start; KeyboardInterrupt after a second signal.

    See docs/embedding.md.
    """
    _check_trio()
    given = _StartOptions(**options)
    plan = make_plan(given)
    from trioperator._supervisor.tree import supervise  # loads all that runs operators, which few commands need

    with contextlib.nullcontext() if plan.name is None else bound_contextvars(operator=plan.name):
        await supervise(plan, task_status=given.task_status)


def check_not_loading(function: str) -> None:
    """Raise ConfigError if a file calls the *function*, which runs operators, while a command loads its handlers.

    Loading a file, as ``trioperator check``, ``rbac``, ``manifests`` and ``crds`` do, must never touch a cluster.
    """
    source = loaded_source.get()
    if source is not None:
        raise ConfigError(
            f"{source} calls {function}() while it is loaded for its handlers, and must not run an operator then: put"
            ' the call below `if __name__ == "__main__":`.'
        )


def _check_trio() -> None:
    """Raise RuntimeError outside of Trio: asyncio is AnyIO's default, too.

    Raises ConfigError while a file is loaded for its handlers.
    """
    check_not_loading("operator")
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            "Operators run on Trio, but operator() was awaited on asyncio or outside of an event loop. Write"
            " trioperator.run(...), trio.run(trioperator.operator) or anyio.run(trioperator.operator, backend='trio')."
        )


def _check_types(options: OperatorOptions) -> None:
    """Raise TypeError for an option of a wrong type."""
    for name, expected in _TYPES.items():
        value = getattr(options, name)
        if value is not None and not isinstance(value, expected):
            raise TypeError(f"{name}= takes an instance of {expected.__name__}, not {value!r}.")


def _set_coordination(options: OperatorOptions) -> OperatorSettings:
    """Return the settings with the options: as they are without any, as startup handlers may change them."""
    settings = OperatorSettings() if options.settings is None else options.settings
    if (options.standalone, options.priority, options.peering_name, options.shards) == (None, None, None, None):
        return settings
    settings = settings.copy()
    peering = settings.peering
    if options.standalone is not None:
        peering.standalone = options.standalone
    if options.priority is not None:
        peering.priority = options.priority
    if options.peering_name is not None:
        peering.name = options.peering_name
        peering.mandatory = True
    if options.shards is not None:
        settings.leadership.shards = options.shards
    return settings


def _set_storages(settings: OperatorSettings) -> OperatorSettings:
    """Return the settings with the default storages, where none are set: startup handlers may combine them."""
    persistence = settings.persistence
    if persistence.progress_storage is None:
        persistence.progress_storage = SmartProgressStorage()
    if persistence.diffbase_storage is None:
        persistence.diffbase_storage = AnnotationsDiffBaseStorage()
    return settings


def _make_scope(options: OperatorOptions) -> Scope:
    namespaces = options.namespaces
    if options.namespace is not None:
        if namespaces:
            raise TypeError("Pass either namespace= or namespaces=, not both.")
        namespaces = [options.namespace]
    if options.clusterwide and namespaces:
        raise TypeError("An operator is either clusterwide or restricted to namespaces, not both.")
    if isinstance(namespaces, str | re.Pattern):  # otherwise each of its characters would be a pattern
        raise TypeError(f"Pass namespaces as a list, such as [{namespaces!r}].")
    for name in namespaces:
        if not may_exist(name):
            rule = "names consist of lower-case letters, digits and '-', at most 63"
            raise ConfigError(f"There can be no namespace {name!r}: {rule}.")
    return Scope(clusterwide=not namespaces, namespaces=tuple(namespaces))


def _check_memo(memo: object) -> None:
    """Raise ConfigError if the memo cannot be copied for objects."""
    try:
        copy.copy(memo)
    except Exception as error:
        raise ConfigError(
            f"The memo is copied for each object, but {memo!r} cannot be copied: {error!r}. Put it into a Memo, or add"
            " a __copy__() to its class."
        ) from error


def make_plan(options: OperatorOptions) -> Plan:
    """Return the plan of an operator with these options. Raises TypeError or ConfigError for wrong ones."""
    from trioperator._coordination.identity import make_identity

    _check_types(options)
    if options.lifecycle is not None:
        check_lifecycle(options.lifecycle)
    for name in _ENDPOINTS:
        if getattr(options, name) is not None:
            parse_endpoint(getattr(options, name))
    _check_memo(options.memo)
    token = options.live_view_token or None  # an empty one comes from an unset variable
    if options.live_view_app is not None and (token or options.live_view_endpoint):
        raise TypeError("Pass either live_view_app= or live_view_endpoint= and live_view_token=: the app has its own.")
    given = {name: getattr(options, name) for name in OperatorOptions.__struct_fields__}
    made: dict[str, Any] = {
        "registry": get_default_registry() if options.registry is None else options.registry,
        "settings": _set_storages(_set_coordination(options)),
        "memo": Memo() if options.memo is None else options.memo,
        "identity": options.identity or make_identity(),
        "live_view_token": token,
    }
    return Plan(**{**given, **made}, scope=_make_scope(options))


@takes(OperatorOptions)
def run(**options: Any) -> None:
    """Run an operator as a program, with ``trio.run()``.

    ::

        trioperator.run(namespaces=["default"])

    Options and errors are the same as for :func:`operator`. See docs/embedding.md.
    """
    check_not_loading("run")
    raise_file_limit()
    trio.run(lambda: operator(**options), clock=make_clock())
