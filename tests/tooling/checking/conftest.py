"""Fixtures that load sources as an operator's modules."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

import trioperator
from trioperator import OperatorRegistry
from trioperator._tooling.checking import Source


@pytest.fixture
def load(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sequence[Source]]]:
    """Return a function that writes modules, imports them with a new default registry, and returns their sources."""
    before, modules = trioperator.get_default_registry(), set(sys.modules)
    trioperator.set_default_registry(OperatorRegistry())
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(**texts: str) -> Sequence[Source]:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        for name in texts:
            importlib.import_module(name)
        return [Source.parse(name, str(tmp_path / f"{name}.py"), text) for name, text in texts.items()]

    yield load
    trioperator.set_default_registry(before)
    for name in set(sys.modules) - modules:
        del sys.modules[name]
