"""Checks of an operator's handlers and sources before it runs: ``trioperator check``. Pure: nothing is called."""

from __future__ import annotations

from trioperator._tooling.checking.assigned_settings import find_assignments
from trioperator._tooling.checking.asyncio_calls import find_asyncio_calls
from trioperator._tooling.checking.differences import Difference, Effect
from trioperator._tooling.checking.event_loop import find_event_loop_problems
from trioperator._tooling.checking.handlers import find_handler_problems
from trioperator._tooling.checking.kinds import find_kind_problems, find_misspelled_kinds
from trioperator._tooling.checking.kopf_differences import find_kopf_differences
from trioperator._tooling.checking.kopf_names import find_kopf_annotations, find_kopf_problems
from trioperator._tooling.checking.listing import HandlerSummary, list_handlers
from trioperator._tooling.checking.problems import Problem, problem_of
from trioperator._tooling.checking.reconciling import find_reconcile_problems
from trioperator._tooling.checking.selectors import list_selectors
from trioperator._tooling.checking.sources import Source

__all__ = [
    "Difference",
    "Effect",
    "HandlerSummary",
    "Problem",
    "Source",
    "find_assignments",
    "find_asyncio_calls",
    "find_event_loop_problems",
    "find_handler_problems",
    "find_kind_problems",
    "find_kopf_annotations",
    "find_kopf_differences",
    "find_kopf_problems",
    "find_misspelled_kinds",
    "find_reconcile_problems",
    "list_handlers",
    "list_selectors",
    "problem_of",
]
