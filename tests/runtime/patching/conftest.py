"""Patches of objects on the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.runtime.harness import Harness, open_harness
from trioperator.apiserver import Cluster


@pytest.fixture
async def parts(cluster: Cluster) -> AsyncIterator[Harness]:
    """Yield the parts of an operator that send patches."""
    async with open_harness(cluster) as harness:
        yield harness
