"""Kinds of handlers that nothing defines."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import HandlerFn
from trioperator._model.resource import EVERYTHING, Resource, Selector, list_names, select_resources, suggest_kind
from trioperator._model.rights import describe_unknown_kind
from trioperator._model.similar_names import find_similar
from trioperator._tooling.checking.problems import Problem, problem_of

# The ratio of difflib from which on a name is a typo of another: "deploymnts", but not "jobsets".
_TYPO: Final = 0.9


def find_kind_problems(registry: OperatorRegistry, resources: Collection[Resource]) -> Iterator[Problem]:
    """Yield selectors that select none of the *resources*, or several where one is meant, each once."""
    seen: set[Selector] = set()
    for selector, fn, watched in _list_selectors(registry):
        if selector in seen or selector.any_name is EVERYTHING or selector.test is not None:
            continue
        seen.add(selector)
        selection = select_resources(selector, resources, watched=watched)
        if not any(selector.matches(resource) for resource in resources):
            yield problem_of("kinds", fn, f"Nothing defines the kind {suggest_kind(selector, resources)}.")
        elif selection.problem is not None:
            yield problem_of("kinds", fn, selection.problem)
    yield from _find_rights_problems(registry, resources)


def find_misspelled_kinds(registry: OperatorRegistry, built_in: Collection[Resource]) -> Iterator[Problem]:
    """Yield selectors that look like typos of built-in kinds, each once: which other kinds there are is not known."""
    known = list_names(built_in)
    seen: set[Selector] = set()
    for selector, fn, _ in _list_selectors(registry):
        name = selector.name
        if selector in seen or name is None or any(selector.matches(resource) for resource in built_in):
            continue
        seen.add(selector)
        near = None if selector.group else find_similar(name, known, cutoff=_TYPO)
        if near and not any(resource.has_name(name) for resource in built_in):
            text = (
                f"{selector} is no built-in kind: did you mean {near}? If it is a kind of yours, name its group, or"
                " pass its definition with --manifests."
            )
            yield problem_of("kinds", fn, text)
    yield from _find_rights_problems(registry, built_in, groups={kind.group for kind in built_in})


def _find_rights_problems(
    registry: OperatorRegistry, resources: Collection[Resource], *, groups: Collection[str] | None = None
) -> Iterator[Problem]:
    """Yield rights for kinds that do not exist, in these groups only if they are given."""
    for handler in registry:
        for rule in handler.rights:
            unknown = describe_unknown_kind(rule, resources) if groups is None or rule.group in groups else None
            if unknown is not None:
                text = f"The rights= of {handler} name a kind that nothing defines: {unknown}."
                yield problem_of("kinds", handler.fn, text)


def _list_selectors(registry: OperatorRegistry) -> Iterator[tuple[Selector, HandlerFn, bool]]:
    """Yield all selectors, each with its handler's function, and whether its kinds are watched."""
    for handler in registry.resource_handlers():
        yield handler.selector, handler.fn, True
        if isinstance(handler, ReconcileHandler):
            yield from ((owned.selector, handler.fn, True) for owned in handler.owns)
            yield from ((mapper.selector, handler.fn, True) for mapper in handler.mappers)
    for webhook in registry.webhook_handlers():
        yield webhook.selector, webhook.fn, False
