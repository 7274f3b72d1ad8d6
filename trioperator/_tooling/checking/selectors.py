"""Selectors that are sent to the API server for each kind, as far as they are known without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import ResourceHandler
from trioperator._model.resource import Resource, Selector
from trioperator._runtime.watching.targets import Requirements, select_targets
from trioperator.settings import OperatorSettings

_VERBS = frozenset({"list", "watch", "patch"})


class _Read(msgspec.Struct, frozen=True):
    """A kind that a reconcile handler owns, or whose objects it maps to others."""

    resource: Resource
    labels: tuple[tuple[str, str], ...] = ()
    needs_bodies: bool = False


def list_selectors(registry: OperatorRegistry, settings: OperatorSettings | None = None) -> dict[str, str]:
    """Return what is received of the kinds that handlers select, by these selectors, where that is not everything.

    Other handlers may select the same kind by another name: the names that they may have in common are compared.
    """
    requirements = Requirements.of(registry, settings or OperatorSettings())
    found: dict[str, str] = {}
    for selector in requirements.selectors:
        if selector.is_specific and selector.name is not None:
            resource = _imagine(selector)
            wanted = msgspec.structs.replace(
                requirements,
                handlers=_join(requirements.handlers, selector),
                webhooks=_join(requirements.webhooks, selector),
            )
            reads = tuple(_find_reads(requirements, selector, resource))
            targets = select_targets(wanted, [resource], reads, lambda _: (None,)).by_key
            found |= {str(selector): target.summary for target in targets.values() if target.required}
    return found


def _join(handlers: Iterable[ResourceHandler], selector: Selector) -> tuple[ResourceHandler, ...]:
    """Return the handlers that may be for what a selector selects, as if they were declared with it."""
    return tuple(msgspec.structs.replace(h, selector=selector) for h in handlers if _may_select(h.selector, selector))


def _imagine(selector: Selector) -> Resource:
    """Return a kind that a selector matches."""
    name = selector.name or ""
    return Resource(
        selector.group or "",
        selector.version or "v1",
        selector.plural or name,
        selector.kind or name,
        selector.singular or name,
        verbs=_VERBS,
    )


def _find_reads(requirements: Requirements, selector: Selector, resource: Resource) -> Iterator[_Read]:
    for handler in requirements.handlers:
        if isinstance(handler, ReconcileHandler):
            for owned in handler.owns:
                if _may_select(owned.selector, selector):
                    yield _Read(resource, tuple(sorted(owned.labels.items())))
            yield from (_Read(resource) for mapper in handler.mappers if _may_select(mapper.selector, selector))


def _may_select(selector: Selector, other: Selector) -> bool:
    """Check whether two selectors may select the same kind."""
    if not selector.is_specific or selector.name is None or other.name is None:
        return True
    groups = {selector.group, other.group} - {None}
    return len(groups) < 2 and _stem(selector.name) == _stem(other.name)


def _stem(name: str) -> str:
    """Return what a kind and its plural have in common."""
    return name.lower().removesuffix("s")
