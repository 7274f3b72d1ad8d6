"""Kopf's runner of operators, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from trioperator import testing
from trioperator.cli import CLIControls
from trioperator.kopf.command import controls_for_kopf, kopf_environment
from trioperator.kopf.imports import install


class KopfRunner(testing.KopfRunner):
    """Run Kopf's command in a thread while the block goes on; see ``trioperator.testing.KopfRunner``.

    The operators may use asyncio, in a loop of their own thread; so may the tests. ``import kopf`` means trioperator as
    long as the command runs.
    """

    def _complete(self, controls: CLIControls) -> CLIControls:
        return controls_for_kopf(controls)

    @contextlib.contextmanager
    def _prepared(self, args: Sequence[str]) -> Iterator[None]:
        with install(), kopf_environment(args):
            yield
