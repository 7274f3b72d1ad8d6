"""The cost of a custom resource definition: its patterns and rules are compiled within a limited time.

The real server estimates the cost of rules, and rejects definitions whose rules are too expensive. Compiling takes
0.05 to 60 ms for each pattern and rule, and 3 MiB have room for 100,000 of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..model.status_causes import StatusCause, forbidden
from .cel import is_installed
from .patterns import compile_pattern
from .validation_rules import compile_message, compile_rule, rules_of

_SECONDS: Final = 0.4  # of CPU time
_SCHEMAS_LIMIT: Final = 10_000  # each takes 50 µs, twice as long with a default or in a junction; a rule 100 µs
_PATTERNS_LIMIT: Final = 1_000  # different ones: this many stay compiled
_RULES_LIMIT: Final = 2_000
_PATHS_LIMIT: Final = 64 * 1024  # characters of the columns of a version; each step takes 2 µs for each object

Object = Mapping[str, Any]


def check_costs(versions: Sequence[Object], path: str) -> Iterator[StatusCause]:
    """Yield an error if the versions have too many schemas, patterns or rules, or if compiling them takes too long."""
    for at, version in enumerate(versions):
        yield from _check_columns(version.get("additionalPrinterColumns") or (), f"{path}[{at}]")
    patterns, nodes, count = _patterns_and_rules(versions)
    if count > _SCHEMAS_LIMIT:
        yield forbidden(
            path, f"must have at most {_SCHEMAS_LIMIT} schemas and rules, with those in schemas, but has {count}"
        )
        return
    rules = dict.fromkeys(rule for node in nodes for rule in rules_of(node))
    if len(patterns) > _PATTERNS_LIMIT or len(rules) > _RULES_LIMIT:
        yield forbidden(path, f"must have at most {_PATTERNS_LIMIT} patterns and {_RULES_LIMIT} rules")
        return
    end = time.thread_time() + _SECONDS
    for pattern in patterns:
        with contextlib.suppress(ValueError):  # which is reported with its path
            compile_pattern(pattern)
        if time.thread_time() > end:
            yield forbidden(path, "the patterns take too long to compile")
            return
    for rule in rules if is_installed() else ():
        with contextlib.suppress(ValueError):
            compile_rule(rule)
        with contextlib.suppress(ValueError):
            compile_message(rule)
        if time.thread_time() > end:
            yield forbidden(path, "the rules take too long to compile")
            return


def _check_columns(columns: Sequence[Object], path: str) -> Iterator[StatusCause]:
    if sum(len(column.get("jsonPath") or "") for column in columns) > _PATHS_LIMIT:
        text = f"must have paths of at most {_PATHS_LIMIT} characters together"
        yield forbidden(f"{path}.additionalPrinterColumns", text)


def _patterns_and_rules(versions: Sequence[Object]) -> tuple[dict[str, None], list[Object], int]:
    """Return the different patterns, the schemas with rules, and the number of all schemas and rules."""
    patterns: dict[str, None] = {}
    nodes: list[Object] = []
    count = 0
    pending: list[Any] = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    while pending:
        node = pending.pop()
        if not isinstance(node, Mapping):
            continue
        count += 1 if node.get("default") is None else 2
        if pattern := node.get("pattern"):
            patterns[pattern] = None
        if rules := node.get("x-kubernetes-validations"):
            nodes.append(node)
            count += 2 * len(rules)
        pending += [node.get(word) for word in ("items", "additionalProperties", "not")]
        for word in ("allOf", "anyOf", "oneOf"):
            pending += node.get(word) or ()
            count += len(node.get(word) or ())
        pending += (node.get("properties") or {}).values()
    return patterns, nodes, count
