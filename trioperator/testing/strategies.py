"""Strategies of exploration: which values the fields of objects get. ``register()`` adds some.

These are Hypothesis strategies, and need the extra ``trioperator[testing]``.
"""

from __future__ import annotations

from trioperator.testing.exploring.names import register
from trioperator.testing.exploring.schemas import from_examples, from_schema

__all__ = ["from_examples", "from_schema", "register"]
