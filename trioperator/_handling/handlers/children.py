"""Children of objects as reconcile handlers declare and return them. Pure."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from trioperator._handling.handlers.handler import HandlerFn, is_async, signature_of, unwrap
from trioperator._model.custom_kind import find_kind
from trioperator._model.resource import Selector
from trioperator._model.signatures import copy_signature
from trioperator.errors import ConfigError, TemporaryError

#: Strategy for a child that exists and differs from what is desired.
Strategy: TypeAlias = Literal["in_place", "recreate", "on_delete", "rolling"]

# Arguments of mappers that need more than the metadata.
_BODIES: Final = frozenset({"body", "spec", "status"})
_FORMS: Final = "'deployments', 'deployments.apps', ('apps/v1', 'Deployment'), a class of crds.kind() or an Owned"


class Requeue(TemporaryError):
    """Request to call a reconcile handler again: in *after* seconds, or earlier if anything changes.

    ::

        @trioperator.on.reconcile("webapps", owns=["deployments"])
        def reconcile(spec):
            yield make_deployment(spec)
            yield trioperator.Requeue(after=30)

    Return or yield it, alone or among the children, or raise it, which does not count as an error. Alone or raised, it
    leaves the children as they are. Raises ValueError for a time that is negative or not a number.
    """

    def __init__(self, after: float) -> None:
        if isinstance(after, bool) or not isinstance(after, int | float) or not 0 <= after < math.inf:
            raise ValueError(f"Requeue has after={after!r}: it must be a number of seconds, 0 or more.")
        super().__init__(f"It is to be called again in {after:g} seconds.", delay=after)
        self.after = after


class Child:
    """A desired child of an object, with more than its manifest.

    ::

        database = trioperator.Child(make_statefulset(spec), ready=lambda body: body["status"].get("readyReplicas"))
        return [database, trioperator.Child(make_deployment(spec), depends_on=[database])]

    - *manifest*: the object, as a dict or an object of a client library
    - *depends_on*: other children, which must exist and be ready before this one is applied
    - *ready*: sync function of the child's body, for children that depend on it and for rolling updates; default: it is
      ready when it exists. It needs the body: ``owns=[Owned(..., bodies=True)]``. A child whose
      ``status.observedGeneration`` is older than its generation is not ready, and the function is not called
    - *strategy*: what happens if it exists and differs; default: the strategy of its kind, see :class:`Owned`

    Raises TypeError if *depends_on* has anything but children, or *ready* is not a sync function; ValueError for an
    unknown strategy.
    """

    __slots__ = ("depends_on", "manifest", "ready", "strategy")

    def __init__(
        self,
        manifest: Any,
        *,
        depends_on: Iterable[Child] = (),
        ready: Callable[[Mapping[str, Any]], object] | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        if strategy is not None:
            _check_strategy(strategy)
        self.strategy = strategy
        self.manifest = manifest
        self.depends_on = tuple(depends_on)
        self.ready = ready
        for other in self.depends_on:
            if not isinstance(other, Child):
                raise TypeError(f"depends_on has {type(other).__name__}: it must have other children, each a Child.")
        if ready is not None and (not callable(ready) or is_async(ready)):
            raise TypeError(f"ready={ready!r} must be a sync function of the body.")


def _check_strategy(strategy: object) -> None:
    if strategy not in get_args(Strategy):
        raise ValueError(f"The strategy {strategy!r} is not one of {', '.join(map(repr, get_args(Strategy)))}.")


class Owned:
    """A kind of children, for ``owns=`` of a reconcile handler.

    ::

        @trioperator.on.reconcile("webapps", owns=[trioperator.Owned("deployments", bodies=True), "services"])

    With *bodies*, children of the kind are cached as a whole, and are in the argument ``children``; by default, only
    what is needed to notice changes is cached. *strategy* is what happens to a child that exists and differs:

    - ``"in_place"``, the default: it is changed
    - ``"recreate"``: it is changed, or deleted and created again where fields differ that cannot be changed
    - ``"on_delete"``: it stays as it is until somebody deletes it
    - ``"rolling"``: it is changed when all others of the kind are ready, one at a time; each is a :class:`Child` with
      *ready*

    Children get the *labels*, and only objects with these labels are watched: for kinds with many other objects.

    Raises TypeError for anything that does not name a kind, and for labels that are not strings; ValueError for an
    unknown strategy.
    """

    __slots__ = ("bodies", "labels", "selector", "strategy")

    def __init__(
        self,
        *kind: str | type,
        bodies: bool = False,
        strategy: Strategy = "in_place",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        selector = _parse_kind(kind)
        if selector is None:
            raise TypeError(f"{kind!r} does not name a kind of children: pass {_FORMS}.")
        _check_strategy(strategy)
        self.labels = dict(labels or {})
        if not all(isinstance(part, str) for pair in self.labels.items() for part in pair):
            raise TypeError(f"labels={labels!r} must be names and values of labels, all of them strings.")
        self.strategy = strategy
        self.selector = selector
        self.bodies = bodies

    def __str__(self) -> str:
        return str(self.selector)


class Mapper(msgspec.Struct, frozen=True, eq=False):
    """Mapper of the objects of a kind to those that are to be reconciled when they change."""

    selector: Selector
    fn: Callable[..., Any]

    @property
    def needs_bodies(self) -> bool:
        """Whether the function may look at more than the metadata of objects."""
        signature = signature_of(self.fn)
        return signature.takes_all or not _BODIES.isdisjoint(signature.names)

    def looks_up(self, indices: Iterable[str]) -> bool:
        """Return whether the function may look up one of these indices, so that it depends on more than the object."""
        signature = signature_of(self.fn)
        return any(signature.takes_all or index in signature.names for index in indices)


class Desired(msgspec.Struct, frozen=True):
    """Result of a call of a reconcile handler: the children, or that they stay as they are, and the requeue.

    ``silent`` is what it has done in place of saying that there are no children: it is empty if it has said anything.
    """

    children: tuple[Child, ...] = ()
    keep: bool = False
    after: float | None = None
    silent: str = ""

    @classmethod
    def of(cls, result: Any) -> Desired:
        """Collect what a handler has returned. Raises ConfigError for what is no child."""
        if result is None:
            return cls(silent=_RETURNED_NONE)
        items = list(_flatten(result))
        after = min((item.after for item in items if isinstance(item, Requeue)), default=None)
        wanted = (item for item in items if not isinstance(item, Requeue))
        children = tuple(item if isinstance(item, Child) else Child(item) for item in wanted)
        return cls(children, keep=after is not None and not children, after=after)


_RETURNED_NONE: Final = (
    "has returned None, which does not say what children there are to be. Return a list, [] if there are none; or"
    " trioperator.Requeue(after=...), to leave them as they are"
)
_YIELDED_NOTHING: Final = (
    "has returned before it has yielded anything, which does not say what children there are to be. Yield [] if"
    " there are none; or trioperator.Requeue(after=...), to leave them as they are"
)


def _flatten(result: Any) -> Iterator[Any]:
    if result is None:
        return
    if isinstance(result, str | bytes | bool | int | float):
        raise ConfigError(
            f"It returned {result!r}, which is not a child: return dicts, Child or Requeue, or a list of them."
        )
    if isinstance(result, Mapping | Child | Requeue) or not isinstance(result, Iterable):
        yield result
        return
    for item in result:
        yield from _flatten(item)


def collecting(fn: HandlerFn) -> HandlerFn:
    """Return a function that calls *fn*, and collects what it returns, yields, or raises in order to be requeued."""
    wrapper = _collecting_async(fn) if is_async(fn) or inspect.isasyncgenfunction(unwrap(fn)) else _collecting_sync(fn)
    functools.update_wrapper(wrapper, fn)
    copy_signature(wrapper, fn)
    return wrapper


def _collecting_async(fn: HandlerFn) -> HandlerFn:
    async def call(**kwargs: Any) -> Desired:
        return await _collect(fn, fn(**kwargs))

    return call


def _collecting_sync(fn: HandlerFn) -> HandlerFn:
    def call(**kwargs: Any) -> Any:
        try:
            result = fn(**kwargs)
            if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
                return _collect(fn, result)  # awaited outside of the thread
            return _desire(fn, list(_drain(result)) if isinstance(result, Generator) else result)
        except Requeue as requeue:
            return Desired.of(requeue)

    return call


async def _collect(fn: HandlerFn, result: Any) -> Desired:
    try:
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterable):
            result = [item async for item in result]
        return _desire(fn, result)
    except Requeue as requeue:
        return Desired.of(requeue)


def _drain(generator: Generator[Any, None, Any]) -> Iterator[Any]:
    """Yield what a generator yields, and what it returns in the end."""
    result = yield from generator
    if result is not None:
        yield result


def _desire(fn: HandlerFn, result: Any) -> Desired:
    if result == [] and _returns_early(unwrap(fn)):
        return Desired(silent=_YIELDED_NOTHING)
    return Desired.of(result)


@functools.cache
def _returns_early(fn: Any) -> bool:
    """Check whether a function is a generator with a return statement, as those with guard clauses have."""
    if not (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
        return False
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False  # there is no source to look at
    nodes = list(ast.iter_child_nodes(definition))
    for node in nodes:
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    return False


def parse_owned(name: str, owns: Any) -> tuple[Owned, ...]:
    """Validate and return the kinds of children that a reconcile handler declares. Raises TypeError."""
    if owns is None:
        return ()
    if isinstance(owns, str | Owned) or not isinstance(owns, Iterable):
        raise TypeError(f"{name} has owns={owns!r}: it must be a list of kinds, each {_FORMS}.")
    return tuple(_parse_owned(name, kind) for kind in owns)


def _parse_owned(name: str, kind: Any) -> Owned:
    if isinstance(kind, Owned):
        return kind
    if isinstance(kind, str) or find_kind(kind) is not None:
        return Owned(kind)
    if isinstance(kind, tuple | list):
        return Owned(*kind)
    raise TypeError(f"{name} has {kind!r} in owns=: a kind is {_FORMS}.")


def parse_mappers(name: str, watches: Any) -> tuple[Mapper, ...]:
    """Validate and return the mappers of a reconcile handler. Raises TypeError."""
    if watches is None:
        return ()
    if not isinstance(watches, Mapping):
        raise TypeError(f"{name} has watches={watches!r}: it must be a dict of kinds and functions.")
    for kind, fn in watches.items():
        if not callable(fn) or is_async(fn) or isinstance(fn, type):
            raise TypeError(f"{name} has {fn!r} in watches=: a mapper of {kind!r} must be a sync function.")
    return tuple(Mapper(_parse_watched(name, kind), fn) for kind, fn in watches.items())


def _parse_watched(name: str, kind: Any) -> Selector:
    selector = _parse_kind(kind if isinstance(kind, tuple) else (kind,))
    if selector is None:
        raise TypeError(f"{name} has {kind!r} in watches=: a kind is 'secrets' or ('apps/v1', 'Deployment').")
    return selector


def _parse_kind(parts: tuple[Any, ...]) -> Selector | None:
    """Return the kind that strings or a class name; None for anything else."""
    info = find_kind(parts[0]) if len(parts) == 1 else None
    if info is not None:
        return Selector(group=info.group, version=info.version, plural=info.plural)
    return Selector.parse(*parts) if parts and all(isinstance(part, str) for part in parts) else None
