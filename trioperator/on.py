"""Decorators that register functions as handlers.

::

    @trioperator.on.create("example.com", "v1", "widgets", labels={"tier": "gold"})
    def created(spec, name, **_): ...

Every decorator returns the function unchanged, so several can be stacked. Positional arguments select resource kinds
(see :class:`trioperator._model.resource.Selector`). The options have Kopf's names and meanings, where Kopf has them.
Options that many decorators share are explained in :mod:`trioperator._handling.declaring.help`; ``help()`` of each
decorator shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar, Unpack

from trioperator._handling.arguments.conditions import check_type
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.admission_options import (
    ConvertOptions,
    MutateOptions,
    ValidateOptions,
    find_version,
    parse_admission_options,
    parse_conversion_options,
)
from trioperator._handling.declaring.help import explains
from trioperator._handling.declaring.options import (
    ActivityOptions,
    CreateOptions,
    DaemonOptions,
    DeleteOptions,
    EventOptions,
    IndexOptions,
    ReconcileOptions,
    RegisterOptions,
    ResumeOptions,
    SubhandlerOptions,
    TimerOptions,
    UpdateOptions,
    check_options,
    check_parentheses,
    parse_durations,
    parse_filters,
    parse_on_change,
    parse_retry_options,
    parse_selection,
    parse_spawning_options,
    parse_timer_options,
)
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry
from trioperator._handling.declaring.subhandlers import running_subhandlers
from trioperator._handling.handlers.children import collecting, parse_mappers, parse_owned
from trioperator._handling.handlers.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    DaemonHandler,
    EventHandler,
    Handler,
    IndexHandler,
    Reason,
    TimerHandler,
    check_function,
    derive_id,
)
from trioperator._handling.handlers.typed import bind_types
from trioperator._handling.reviews.admission import AdmissionHandler, WebhookType
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._model.fields import parse_field

__all__ = [
    "cleanup",
    "convert",
    "create",
    "daemon",
    "delete",
    "event",
    "field",
    "index",
    "login",
    "mutate",
    "probe",
    "reconcile",
    "register",
    "resume",
    "startup",
    "subhandler",
    "this",
    "timer",
    "update",
    "validate",
]

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Decorator that returns the function unchanged."""

    def __call__(self, fn: F, /) -> F:
        """Register the function."""
        ...


@explains(ActivityOptions)
def startup(*fns: Never, **options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the operator starts, before it connects to the API server.

    ::

        @trioperator.on.startup()
        def configure(settings, **_):
            settings.queueing.worker_limit = 20

    If it fails permanently, the operator exits with an ActivityError. Programming errors, such as a NameError or a
    TypeError, are not retried by default. See docs/handlers.md.

    - ``retries``: number of attempts until the handler fails; default: ``settings.execution.activity_retries``, 10,
      unless it has a timeout
    - ``id``: name in logs; default: the function's qualified name
    """
    return _activity(Activity.STARTUP, fns, options)


@explains(ActivityOptions)
def login(*fns: Never, **options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the operator logs in: after startup, and when its credentials are rejected or expire.

    ::

        @trioperator.on.login(retries=3)
        def login(**kwargs):
            return trioperator.ConnectionInfo(server="https://example.com", token=read_token())

    It returns a ``ConnectionInfo``, or None if it has no credentials. With several login handlers, all of them are
    called. The credentials with the highest ``priority`` are used until the API server rejects them, then the next
    ones. When the last ones are rejected, all login handlers are called again, and requests wait. Without login
    handlers, the operator logs in as kubectl does, or with the pod's service account. The operator raises LoginError
    if there are no credentials. See docs/login.md.

    - ``retries``: number of attempts until the handler fails; default: ``settings.execution.activity_retries``, 10,
      unless it has a timeout
    - ``id``: name in logs; default: the function's qualified name
    """
    return _activity(Activity.AUTHENTICATION, fns, options)


@explains(ActivityOptions)
def cleanup(*fns: Never, **options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the operator stops, after all other handlers, daemons and timers.

    ::

        @trioperator.on.cleanup()
        async def close(memo, **_):
            await memo.connection.aclose()

    It is cancelled when ``settings.process.grace`` (25 seconds for the whole stop) is over. See docs/handlers.md.

    - ``retries``: number of attempts until the handler fails; default: ``settings.execution.activity_retries``, 10,
      unless it has a timeout
    - ``id``: name in logs; default: the function's qualified name
    """
    return _activity(Activity.CLEANUP, fns, options)


@explains(ActivityOptions)
def probe(*fns: Never, **options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the liveness endpoint is requested, at most every 10 seconds.

    ::

        @trioperator.on.probe(id="queue")
        def queue_length(memo, **_):
            return len(memo.queue)

    Its result is in the JSON response, under its id. If it fails, the response is an HTTP 500. See docs/handlers.md.

    - ``retries``: number of attempts for one probe; default: 1, unless it has a timeout
    - ``id``: name in logs; default: the function's qualified name
    """
    return _activity(Activity.PROBE, fns, options)


@explains(EventOptions)
def event(*selector: Any, **options: Unpack[EventOptions]) -> Decorator:
    """Call the function for each watch event of an object. Errors are logged, and not retried.

    ::

        @trioperator.on.event("example.com", "v1", "widgets")
        def seen(type, name, logger, **_):
            logger.info("%s: %s", type, name)

    ``type`` is None for objects from the initial list. See docs/handlers.md.

    - ``id``: name in logs, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.event", options, EventOptions)
    restrictions = parse_selection("on.event", selector, known)

    return _registering(known, lambda fn: EventHandler(**_identity(fn, known, restrictions), **restrictions))


@explains(IndexOptions)
def index(*selector: Any, **options: Unpack[IndexOptions]) -> Decorator:
    """Keep the results of the function for all objects in an in-memory index, which is an argument of all handlers.

    ::

        @trioperator.index("pods")
        def pods_by_node(name, spec, **_):
            return {spec.get("nodeName"): name}

        @trioperator.on.create("widgets")
        def created(spec, pods_by_node: trioperator.Index, **_): ...

    It is called for each state of each object. A dict that it returns contains values by keys; any other value is kept
    under the key None; None leaves the object's previous values. See docs/indexing.md.

    - ``errors``: how arbitrary exceptions are treated; default: ``ErrorsMode.IGNORED``, to keep the previous values
    - ``timeout``, ``retries``: seconds since the first error of an object, and number of attempts, until the object is
      excluded from the index; default: no limits
    - ``id``: name of the index; default: the function's name
    """
    known = check_options("on.index", options, IndexOptions)
    restrictions = parse_selection("on.index", selector, known)
    retrying = parse_retry_options("on.index", known)

    def make(fn: Callable[..., Any]) -> IndexHandler:
        identity = _identity(fn, {**known, "field": None}, restrictions)
        identity["id"] = known.get("id") or identity["id"].rpartition(".")[2]
        return IndexHandler(**identity, **retrying, **restrictions)

    return _registering(known, make)


@explains(ReconcileOptions)
def reconcile(*selector: Any, **options: Unpack[ReconcileOptions]) -> Decorator:
    """Call the function when the object or its children may have changed, and apply the children that it returns.

    ::

        @trioperator.on.reconcile("webapps", owns=["deployments", "services"])
        def reconcile(name, spec):
            return [make_deployment(name, spec), make_service(name, spec)]

    It is called when the operator starts, when the object changes (but not for its status alone), when a child or a
    watched object changes, and at the resync. It is never called concurrently for one object, nor while the object is
    being deleted. It returns or yields the desired children: dicts, objects of a client library, or
    ``trioperator.Child``. An empty list means that there are none; None is an error if it has ``owns``. Children are
    applied server-side with the object as their owner, and deleted when they are no longer desired. Unchanged children
    cost no requests. Return ``Requeue(after=...)`` to be called again. See docs/reconcile.md.

    - ``owns``: kinds of children: ``"deployments"``, ``("apps/v1", "Deployment")``, a class that declares a kind, or a
      ``trioperator.Owned``
    - ``watches``: dict from kinds to sync functions. Each takes keyword arguments of an object of its kind, and returns
      the objects to reconcile: their names, pairs of namespace and name, or bodies
    - ``resync``: seconds until the function is called again if nothing has changed, less a random part of up to a
      tenth; default: never
    - ``condition``: type of a condition in the status, such as ``"Applied"``, that reports whether the children are
      applied, and if not, why; default: none
    - ``kstatus``: whether the status has the conditions ``Ready``, ``Applied``, ``Reconciling`` and ``Stalled``, and
      ``observedGeneration``, as far as the schema of a custom kind has them and nobody else sets them; default: True
    - ``timeout``, ``retries``: seconds since the first of several errors in a row, and number of attempts, after which
      the function is not called again until something changes; default: no limits
    - ``backoff``: seconds until the retry after an error; default: 0.1 after the first, doubled after each up to 600
    - ``id``: name in logs, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.reconcile", options, ReconcileOptions)
    restrictions = parse_selection("on.reconcile", selector, known)
    retrying = parse_retry_options("on.reconcile", known)
    retrying |= parse_durations("on.reconcile", known, "resync")
    owns = parse_owned("on.reconcile", known.get("owns"))
    mappers = parse_mappers("on.reconcile", known.get("watches"))
    condition = known.get("condition")
    if condition is not None:
        check_type(condition)

    def make(fn: Callable[..., Any]) -> ReconcileHandler:
        identity = _identity(fn, known, restrictions, generator=True)
        others = (handler.fn for handler in _registry(known) if isinstance(handler, ReconcileHandler))
        typed = identity.pop("fn")
        same = (other for other in others if getattr(other, "__wrapped__", None) == typed)
        return ReconcileHandler(
            fn=next(same, None) or collecting(typed),
            owns=owns,
            mappers=mappers,
            condition=condition,
            kstatus=known.get("kstatus") is not False,
            **identity,
            **retrying,
            **restrictions,
        )

    return _registering(known, make)


@explains(CreateOptions)
def create(*selector: Any, **options: Unpack[CreateOptions]) -> Decorator:
    """Call the function when an object is created, or is seen for the first time.

    ::

        @trioperator.on.create("example.com", "v1", "widgets", labels={"tier": "gold"}, retries=5)
        def create_widget(spec, name, logger, **_):
            logger.info("Creating %s of size %s.", name, spec["size"])

    A result other than None is stored in the status, under the id. See docs/handlers.md.
    """
    return _change("on.create", selector, check_options("on.create", options, CreateOptions), reason=Reason.CREATE)


@explains(ResumeOptions)
def resume(*selector: Any, **options: Unpack[ResumeOptions]) -> Decorator:
    """Call the function for each object that exists when the operator starts.

    ::

        @trioperator.on.resume("example.com", "v1", "widgets")
        @trioperator.on.create("example.com", "v1", "widgets")
        def connect(name, memo, **_):
            memo.connection = connect_to(name)

    A result other than None is stored in the status, under the id. See docs/handlers.md.

    - ``deleted``: whether it is called for objects that are being deleted, too; default: False
    """
    return _change("on.resume", selector, check_options("on.resume", options, ResumeOptions), reason=None, initial=True)


@explains(UpdateOptions)
def update(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when an object, or its ``field=``, has changed.

    ::

        @trioperator.on.update("example.com", "v1", "widgets", field="spec.size")
        def resize(old, new, name, logger, **_):
            logger.info("Resizing %s from %s to %s.", name, old, new)

    A result other than None is stored in the status, under the id. Changes of the status, and of metadata other than
    labels and annotations, count only if they are a ``field=``. See docs/handlers.md.

    - ``field``, ``value``: field such as ``"spec.size"``, and its value before or after the change; default: any value
    """
    known = check_options("on.update", options, UpdateOptions)
    return _change("on.update", selector, known, reason=Reason.UPDATE, needs_change=True)


@explains(DeleteOptions)
def delete(*selector: Any, **options: Unpack[DeleteOptions]) -> Decorator:
    """Call the function when an object is being deleted.

    ::

        @trioperator.on.delete("example.com", "v1", "widgets")
        def delete_widget(name, logger, **_):
            logger.info("Deleting %s.", name)

    A result other than None is stored in the status, under the id. The operator adds its finalizer, so that the object
    is deleted only after the handler has finished. See docs/handlers.md.

    - ``optional``: with True the operator adds no finalizer for it: the object may be gone when it is called, and
      deletions while the operator is down are missed; default: False
    """
    return _change("on.delete", selector, check_options("on.delete", options, DeleteOptions), reason=Reason.DELETE)


@explains(UpdateOptions)
def field(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when a field is added, changed or removed, also when the object is created.

    ::

        @trioperator.on.field("example.com", "v1", "widgets", field="spec.size")
        def resize(old, new, **_): ...

    A result other than None is stored in the status, under the id. ``old``, ``new`` and ``diff`` are about the
    field. See docs/handlers.md.

    - ``field``, ``value``: the field (required), and its value before or after the change; default: any value
    """
    known = check_options("on.field", options, UpdateOptions)
    if not known.get("field"):
        raise TypeError("on.field needs field=..., the field to watch.")
    return _change("on.field", selector, known, reason=None, needs_change=True)


@explains(DaemonOptions)
def daemon(*selector: Any, **options: Unpack[DaemonOptions]) -> Decorator:
    """Call the function once for each object, to run while the object exists and matches the filters.

    ::

        @trioperator.daemon("example.com", "v1", "widgets", cancellation_timeout=10)
        async def monitor(spec, stopped, logger, **_):
            while not stopped:
                logger.info("The size is %s.", spec["size"])
                await stopped.wait(60)

    A result other than None is stored in the status, under the id. The arguments always show the newest state. To stop
    it, the operator sets ``stopped``; with ``cancellation_timeout``, it then cancels async functions.
    See docs/daemons.md.

    - ``cancellation_backoff``: seconds from setting ``stopped`` to the cancellation; default: 0
    - ``cancellation_timeout``: seconds from the cancellation until the daemon is abandoned; default: while the operator
      runs, the daemon is neither cancelled nor abandoned, and deletion waits for it
    - ``cancellation_polling``: seconds between messages that a daemon without ``cancellation_timeout`` still runs;
      default: ``settings.background.cancellation_polling``, 60
    - ``finalizer``: whether the operator adds its finalizer, so that deletion waits for the daemon; default: True
    - ``id``: name in logs, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.daemon", options, DaemonOptions)
    times = parse_durations("on.daemon", known, "cancellation_backoff", "cancellation_timeout", "cancellation_polling")
    common = parse_spawning_options("on.daemon", selector, known)

    return _registering(known, lambda fn: DaemonHandler(**_identity(fn, known, common), **common, **times))


@explains(TimerOptions)
def timer(*selector: Any, **options: Unpack[TimerOptions]) -> Decorator:
    """Call the function repeatedly for each object, while the object exists and matches the filters.

    ::

        @trioperator.timer("example.com", "v1", "widgets", interval=60)
        async def check(spec, patch, **_):
            patch.status["healthy"] = await is_healthy(spec["url"])

    A result other than None is stored in the status, under the id. The arguments always show the newest state. Without
    ``interval`` and ``cron`` the function is called once, or with ``idle`` once after each change. See docs/timers.md.

    - ``interval``: seconds from the end of a call to the next one, more than 0; or a sync function of the keyword
      arguments that returns them, or None for no calls
    - ``sharp``: whether ``interval`` is from start to start, and calls that would overlap are skipped; default: False
    - ``idle``: seconds for which the object must be unchanged before a call
    - ``cron``: cron expression such as ``"*/5 * * * *"`` or ``"@hourly"``, in place of the three options above;
      or a sync function of the keyword arguments that returns one, or None for no calls
    - ``timezone``: time zone of ``cron``, as a name or a tzinfo, or a sync function of the keyword arguments that
      returns it; default: UTC
    - ``finalizer``: whether the operator adds its finalizer, so that deletion waits for a running call; default: True
    - ``id``: name in logs, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.timer", options, TimerOptions)
    times = parse_timer_options("on.timer", known)
    common = parse_spawning_options("on.timer", selector, known)

    return _registering(known, lambda fn: TimerHandler(**_identity(fn, known, common), **common, **times))


@explains(ValidateOptions)
def validate(*selector: Any, **options: Unpack[ValidateOptions]) -> Decorator:
    """Call the function before an object is stored or deleted, to deny the request or to warn the client.

    ::

        @trioperator.on.validate("example.com", "v1", "widgets", operations=["CREATE", "UPDATE"])
        def check_size(spec, warnings, **_):
            if spec["size"] > 10:
                raise trioperator.AdmissionError("The size must be 10 at most.", code=400)
            warnings.append("Sizes will be limited to 5.")

    It is not retried: any error denies the write, unless ``ignore_failures`` is set. The operator raises ConfigError if
    ``settings.admission.server`` is not set. See docs/admission.md.

    - ``operation``, ``operations``: ``"CREATE"``, ``"UPDATE"``, ``"DELETE"``, ``"CONNECT"``, or several; default: all
    - ``timeout``: whole seconds that a review may take, from 1 to 30; default: 30
    - ``id``: name in logs, URLs and configurations, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.validate", options, ValidateOptions)
    return _admission("on.validate", selector, known, type=WebhookType.VALIDATING)


@explains(MutateOptions)
def mutate(*selector: Any, **options: Unpack[MutateOptions]) -> Decorator:
    """Call the function before an object is stored, to change it through ``patch``, to deny it, or to warn.

    ::

        @trioperator.on.mutate("example.com", "v1", "widgets")
        def set_defaults(spec, patch, **_):
            if "size" not in spec:
                patch.spec["size"] = 1

    It is not retried: any error denies the write, unless ``ignore_failures`` is set. The operator raises ConfigError if
    ``settings.admission.server`` is not set. See docs/admission.md.

    - ``operation``, ``operations``: ``"CREATE"``, ``"UPDATE"``, ``"DELETE"``, ``"CONNECT"``, or several; default: all
      but ``"DELETE"``, which must be named alone
    - ``timeout``: whole seconds that a review may take, from 1 to 30; default: 30
    - ``reinvocation_policy``: ``"IfNeeded"`` to be called again after changes by other webhooks; default: ``"Never"``
    - ``id``: name in logs, URLs and configurations, plus ``/<field>``; default: the function's qualified name
    """
    known = check_options("on.mutate", options, MutateOptions)
    return _admission("on.mutate", selector, known, type=WebhookType.MUTATING)


@explains(ConvertOptions)
def convert(*selector: Any, **options: Unpack[ConvertOptions]) -> Decorator:
    """Call the function to convert custom objects from one version of their CRD to another one.

    ::

        @trioperator.on.convert("example.com", "widgets", from_="v1", to="v2")
        def v1_to_v2(spec, patch, **_):
            patch.spec["width"], _, patch.spec["height"] = spec["size"].partition("x")
            patch.spec["size"] = None

    Positional arguments select a resource kind without a version: ``"widgets"`` or ``"example.com", "widgets"``
    (docs/selectors.md). The function changes the object through ``patch``, or returns the converted object. Of the
    metadata, only labels and annotations may change (a rule of Kubernetes). An error fails the request that needs the
    conversion. Declare both directions. Other versions are reached through the shortest chain of handlers: with ``v1``
    to ``v2`` and ``v2`` to ``v3``, objects are also converted from ``v1`` to ``v3``.

    The selector may also be a class that declares a version of the kind. Then the function may take and return objects
    of the classes of both versions: ``def up(body: OldWidget) -> Widget``.

    The operator raises ConfigError if ``settings.admission.server`` is not set. See docs/conversion.md.

    - ``from_``, ``to``: versions such as ``"v1"``; both are required
    - ``id``: name in logs; default: the function's qualified name
    """
    known = check_options("on.convert", options, ConvertOptions)
    restrictions = parse_conversion_options("on.convert", selector, known)

    def make(fn: Callable[..., Any]) -> ConversionHandler:
        model = find_version(_registry(known), selector, known["from_"], fn=fn)
        return ConversionHandler(**_identity(fn, known, {"model": model}), **restrictions, model=model)

    return _registering(known, make)


@explains(SubhandlerOptions)
def subhandler(*fns: Never, **options: Unpack[SubhandlerOptions]) -> Decorator:
    """Declare the function as a sub-handler of the running change handler, with its own retries and progress.

    ::

        @trioperator.on.create("example.com", "v1", "widgets")
        def create_widget(spec, **_):
            for item in spec["items"]:

                @trioperator.subhandler(id=item)
                def create_item(item=item, **_): ...

    It is called when the parent returns or awaits ``execute()``, with the same arguments as the parent. The parent is
    called again until all its sub-handlers have finished; finished ones are not called again. Raises RuntimeError
    outside a running change handler, ConfigError if the function requires arguments that do not exist, TypeError or
    ValueError for wrong options or a duplicate id. See docs/subhandlers.md.

    - ``id``: last part of the id ``<parent>/<id>``; default: the function's qualified name
    - ``old``, ``new``: required values of the field before and after the change; only in ``on.update`` and ``on.field``
      handlers
    """
    check_parentheses("subhandler", fns)
    known = check_options("subhandler", options, SubhandlerOptions)

    def declare(fn: F) -> F:
        _declare("subhandler", fn, known)
        return fn

    return declare


this = subhandler  # its name in the first versions of Kopf


@explains(RegisterOptions)
def register(fn: F, **options: Unpack[RegisterOptions]) -> F:
    """Declare *fn* as a sub-handler of the running change handler: :func:`subhandler` without a decorator.

    ::

        @trioperator.on.create("example.com", "v1", "widgets")
        def create_widget(spec, **_):
            for item in spec["items"]:
                trioperator.register(functools.partial(create_item, item=item), id=item)

    Raises the same errors as :func:`subhandler`. See docs/subhandlers.md.

    - ``id``: last part of the id ``<parent>/<id>``; default: the function's qualified name
    """
    _declare("register", fn, check_options("register", options, RegisterOptions))
    return fn


def _declare(name: str, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    running = running_subhandlers(name)
    check_function("A sub-handler", fn)
    sides = {key: options[key] for key in ("old", "new") if options.get(key) is not None}
    if sides and not running.parent.needs_change:
        raise TypeError(f"{name} has {', '.join(sides)}=...: only sub-handlers of on.update and on.field can have it.")
    running.declare(
        running.make(
            fn,
            id=options.get("id"),
            param=options.get("param"),
            **parse_retry_options(name, options),
            **parse_filters(name, options),
            **sides,
        )
    )


def _activity(activity: Activity, fns: tuple[object, ...], options: Mapping[str, Any]) -> Decorator:
    name = "on.login" if activity is Activity.AUTHENTICATION else f"on.{activity}"
    check_parentheses(name, fns)
    known = check_options(name, options, ActivityOptions)
    retrying = parse_retry_options(name, known)

    return _registering(known, lambda fn: ActivityHandler(activity=activity, **_identity(fn, known), **retrying))


def _admission(name: str, selector: tuple[Any, ...], options: Mapping[str, Any], *, type: WebhookType) -> Decorator:
    restrictions = parse_selection(name, selector, options)
    reviewing = parse_admission_options(name, options)

    def make(fn: Callable[..., Any]) -> AdmissionHandler:
        return AdmissionHandler(type=type, **_identity(fn, options, restrictions), **restrictions, **reviewing)

    return _registering(options, make)


def _change(
    name: str,
    selector: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    reason: Reason | None,
    initial: bool = False,
    needs_change: bool = False,
) -> Decorator:
    restrictions = parse_selection(name, selector, options)
    retrying = parse_retry_options(name, options)
    interruptible = parse_on_change(name, options)
    extras = {key: options[key] for key in ("old", "new") if options.get(key) is not None}

    def make(fn: Callable[..., Any]) -> ChangeHandler:
        return ChangeHandler(
            reason=reason,
            initial=initial,
            needs_change=needs_change,
            **_identity(fn, options, restrictions),
            **retrying,
            **restrictions,
            deleted=bool(options.get("deleted")),
            optional=bool(options.get("optional")),
            interruptible=interruptible,
            **extras,
        )

    return _registering(options, make)


def _registering(options: Mapping[str, Any], make: Callable[[Callable[..., Any]], Handler]) -> Decorator:
    """Return a decorator that registers the handler that *make* returns for a function."""

    def decorate(fn: F) -> F:
        _registry(options).append(make(fn))
        return fn

    return decorate


def _registry(options: Mapping[str, Any]) -> OperatorRegistry:
    given: OperatorRegistry | None = options.get("registry")
    return get_default_registry() if given is None else given


def _identity(
    fn: Callable[..., Any],
    options: Mapping[str, Any],
    restrictions: Mapping[str, Any] | None = None,
    *,
    generator: bool = False,
) -> dict[str, Any]:
    """Return what all handlers have: the function, with typed arguments if it declares them, id, param and rights."""
    check_function("A handler", fn, generator=generator)
    if not isinstance(options.get("id"), str | None):
        raise TypeError(f"A handler has id={options['id']!r}: it must be a string.")
    name = options.get("id") or derive_id(fn)
    path = parse_field(options.get("field"))
    typed = bind_types(fn, (restrictions or {}).get("model"))
    if path:
        name = f"{name}/{'.'.join(path)}"
    return {"fn": typed, "id": name, "param": options.get("param"), "rights": options.get("rights", ())}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        from trioperator._model.kopf_names import explain_missing

        raise AttributeError(explain_missing(__name__, name))
