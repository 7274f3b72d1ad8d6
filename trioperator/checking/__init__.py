"""Checks of an operator's handlers and sources before it runs: ``trioperator check``. Pure: nothing is called."""

from __future__ import annotations

from trioperator.checking.asyncio_calls import find_asyncio_calls
from trioperator.checking.handlers import find_handler_problems
from trioperator.checking.kinds import find_kind_problems
from trioperator.checking.kopf_names import find_kopf_problems
from trioperator.checking.listing import HandlerSummary, list_handlers
from trioperator.checking.problems import Problem
from trioperator.checking.sources import Source

__all__ = [
    "HandlerSummary",
    "Problem",
    "Source",
    "find_asyncio_calls",
    "find_handler_problems",
    "find_kind_problems",
    "find_kopf_problems",
    "list_handlers",
]
