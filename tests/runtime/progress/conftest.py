"""Progress of objects on the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.runtime.harness import Harness, open_harness
from trioperator.apiserver import Cluster


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness
