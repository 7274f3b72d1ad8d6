"""Conversion reviews, answered by the handlers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling import guard
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.reviews.admission import DEFAULT_TIMEOUT, Headers, SSLPeer, explain
from trioperator._handling.reviews.conversion import ConversionCause, ConversionHandler, build_converted, find_chain
from trioperator._handling.reviews.conversion_review import build_conversion, build_failure, parse_conversion
from trioperator._logs import get_logger, object_logger
from trioperator._model.crd import version_rank
from trioperator._model.jsontypes import JsonObject
from trioperator._model.patch import Patch
from trioperator._model.resource import Resource, Selection, select_resources
from trioperator.errors import UserCodeError

#: The handlers of conversions by the group and the plural of the objects.
Definitions = Mapping[tuple[str, str], tuple[ConversionHandler, ...]]

# Seconds that a review may take: a little less than the API server waits.
_TIMEOUT: Final = DEFAULT_TIMEOUT * 0.93
# Seconds to wait for the first discovery of resource kinds.
_PATIENCE: Final = 5.0


class _ConversionFailedError(Exception):
    """Raised when an object cannot be converted."""


class Converter:
    """Conversions of custom objects by handlers.

    *find_memo* returns a function for the memo of an object by its uid.
    """

    def __init__(
        self,
        handlers: Sequence[ConversionHandler],
        invoker: Invoker,
        *,
        indices: Indices,
        find_memo: Callable[[str | None], Callable[[], Any]],
    ) -> None:
        self._handlers = handlers
        self._invoker = invoker
        self._indices = indices
        self._find_memo = find_memo
        self._logger = get_logger("trioperator.webhooks.conversion")
        self._known = trio.Event()
        self._resources: Collection[Resource] = ()
        self._selected: dict[ConversionHandler, Selection] = {}
        self._chains: dict[tuple[str, str, str, str], tuple[ConversionHandler, ...] | None] = {}
        self.by_definition: Definitions = {}
        self.problems: tuple[str, ...] = ()

    def update_resources(self, resources: Collection[Resource]) -> bool:
        """Take the resource kinds of the cluster. Return whether that changes which of them are converted."""
        self._resources = resources
        self._chains.clear()
        found: dict[tuple[str, str], tuple[ConversionHandler, ...]] = {}
        for handler in self._handlers:
            selection = _select(handler, resources)
            if selection.problem and handler not in self._selected:
                self._logger.warning("%s", selection.problem)
            self._selected[handler] = selection
            for definition in sorted({(resource.group, resource.plural) for resource in selection.resources}):
                found[definition] = (*found.get(definition, ()), handler)
        changed = found != self.by_definition
        self.by_definition = found
        problems = tuple(self._find_problems())
        for problem in set(problems) - set(self.problems):
            self._logger.warning("%s", problem)
        self.problems = problems
        self._known.set()
        return changed

    def _find_problems(self) -> Iterator[str]:
        """Yield the pairs of served versions between which there is no chain."""
        for group, plural in self.by_definition:
            served = {r.version for r in self._resources if (r.group, r.plural) == (group, plural)}
            for from_, to in itertools.permutations(sorted(served, key=version_rank), 2):
                if self._find_chain(group, plural, from_, to) is None:
                    yield _describe_missing(f"Objects of {plural}.{group}", from_, to)

    def _find_chain(self, group: str, plural: str, from_: str, to: str) -> tuple[ConversionHandler, ...] | None:
        key = (group, plural, from_, to)
        if key not in self._chains:
            self._chains[key] = find_chain(self.by_definition.get((group, plural), ()), from_, to)
        return self._chains[key]

    @property
    def handles_any(self) -> bool:
        """Whether there are handlers of conversions."""
        return bool(self._handlers)

    async def __call__(
        self, review: Mapping[str, Any], *, headers: Headers | None = None, sslpeer: SSLPeer | None = None
    ) -> JsonObject:
        """Answer a conversion review: with all objects in their order, or with the failure of the first one."""
        request = parse_conversion(review)
        with trio.move_on_after(_PATIENCE):
            await self._known.wait()
        hints = {"headers": dict(headers or {}), "sslpeer": sslpeer or {}}
        with trio.move_on_after(_TIMEOUT):
            try:
                converted = [await self._convert(obj, request.desired_api_version, hints) for obj in request.objects]
            except _ConversionFailedError as error:
                return build_failure(review, request.uid, str(error))
            return build_conversion(review, request.uid, converted)
        text = f"{len(request.objects)} objects are not converted after {_TIMEOUT:g} seconds."
        self._logger.error("%s", text)
        return build_failure(review, request.uid, text)

    async def _convert(self, obj: JsonObject, desired: str, hints: Mapping[str, Any]) -> JsonObject:
        """Convert an object by the shortest chain of handlers."""
        (group, _, to), (own_group, _, from_) = desired.rpartition("/"), obj["apiVersion"].rpartition("/")
        if obj["apiVersion"] == desired:
            return obj
        kinds = (r for r in self._resources if (r.group, r.kind) == (group, obj["kind"]))
        resource = next(kinds, None) if group == own_group else None
        chain = None if resource is None else self._find_chain(group, resource.plural, from_, to)
        if resource is None or chain is None:
            raise _ConversionFailedError(_describe_missing(_describe(obj), from_, to))
        for handler in chain:
            obj = await self._call(handler, obj, resource, hints)
        return obj

    async def _call(
        self, handler: ConversionHandler, obj: JsonObject, resource: Resource, hints: Mapping[str, Any]
    ) -> JsonObject:
        cause = self._make_cause(handler, obj, resource, hints)
        patch = Patch()
        token = current_cause.set(cause)
        try:
            outcome = await self._invoker.invoke(
                handler, cause.kwargs_for(handler, patch), attempt=Attempt(0, steady_now()), logger=cause.logger
            )
        finally:
            current_cause.reset(token)
        failed = f"{_describe(obj)} cannot be converted from {cause.from_} to {cause.to}"
        if outcome.error is not None:
            raise _ConversionFailedError(f"{failed}: {explain(outcome.error)}")
        api_version = f"{resource.group}/{cause.to}"
        try:
            converted, dropped = guard.call(
                "The result of {}", handler, build_converted, obj, outcome.result, patch, api_version
            )
        except UserCodeError as error:
            cause.logger.error("%s.", error, exc_info=error.__cause__)
            raise _ConversionFailedError(f"{failed}: {explain(error)}") from error
        if dropped:
            text = "%s has changed metadata, which conversions must not: %s. The changes are dropped."
            cause.logger.warning(text, handler, ", ".join(dropped))
        return converted

    def _make_cause(
        self, handler: ConversionHandler, obj: JsonObject, resource: Resource, hints: Mapping[str, Any]
    ) -> ConversionCause:
        metadata = obj["metadata"]
        ref = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        return ConversionCause(
            resource=dataclasses.replace(resource, version=handler.from_version),
            raw=obj,
            get_memo=self._find_memo(metadata.get("uid")),
            logger=object_logger(ref | {key: metadata.get(key) for key in ("name", "uid", "namespace")}),
            indices=self._indices,
            from_=handler.from_version,
            to=handler.to_version,
            **hints,
        )


def _describe(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj['kind']} {place}{metadata.get('name') or '(new)'}"


def _describe_missing(what: str, from_: str, to: str) -> str:
    return f"{what} cannot be converted from {from_} to {to}: there is no chain of on.convert handlers."


def _select(handler: ConversionHandler, resources: Collection[Resource]) -> Selection:
    """Select the resource kinds that a handler converts. A function of the user's that fails selects none."""
    try:
        return guard.call(
            "The selector {}", handler.selector, select_resources, handler.selector, resources, watched=False
        )
    except UserCodeError as error:
        return Selection(problem=f"{error}. Its handlers are not called.")
