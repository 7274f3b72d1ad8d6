"""Kinds of handlers that nothing defines."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trioperator.checking.problems import Problem, problem_of
from trioperator.handling.handler import HandlerFn, suggest
from trioperator.handling.reconciling import ReconcileHandler
from trioperator.handling.registry import OperatorRegistry
from trioperator.model.resource import EVERYTHING, Resource, Selector, select_resources

__all__ = ["find_kind_problems"]


def find_kind_problems(registry: OperatorRegistry, resources: Collection[Resource]) -> Iterator[Problem]:
    """Yield selectors that select none of the *resources*, or several where one is meant, each once."""
    seen: set[Selector] = set()
    for selector, fn, watched in _list_selectors(registry):
        if selector in seen or selector.any_name is EVERYTHING or selector.test is not None:
            continue
        seen.add(selector)
        selection = select_resources(selector, resources, watched=watched)
        if not any(selector.matches(resource) for resource in resources):
            yield problem_of("kinds", fn, f"Nothing defines the kind {_suggest_kind(selector, resources)}.")
        elif selection.problem is not None:
            yield problem_of("kinds", fn, selection.problem)


def _list_selectors(registry: OperatorRegistry) -> Iterator[tuple[Selector, HandlerFn, bool]]:
    """Yield all selectors, each with its handler's function, and whether its kinds are watched."""
    for handler in registry.resource_handlers():
        yield handler.selector, handler.fn, True
        if isinstance(handler, ReconcileHandler):
            yield from ((owned.selector, handler.fn, True) for owned in handler.owns)
            yield from ((mapper.selector, handler.fn, True) for mapper in handler.mappers)
    for webhook in registry.webhook_handlers():
        yield webhook.selector, webhook.fn, False


def _suggest_kind(selector: Selector, resources: Collection[Resource]) -> str:
    """Return the selector, with the most similar name among the *resources*, or how else it differs from one."""
    name = next((n for n in (selector.any_name, selector.plural, selector.kind) if isinstance(n, str)), None)
    if name is None:
        return str(selector)
    named = sorted(str(resource) for resource in resources if resource.has_name(name))
    if named:
        return f"{selector} (there is {', '.join(named)})"
    known = {each for resource in resources for each in (resource.plural, resource.kind or resource.plural)}
    _, _, hint = suggest([name], known).partition(" ")
    return f"{selector} {hint}".rstrip()
