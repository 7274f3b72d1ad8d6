"""The pytest plugin: fixtures for tests of operators. It imports nothing heavy until a fixture is requested.

- ``cluster``: a fresh in-memory Kubernetes API (:class:`trioperator.apiserver.Cluster`), whose time is Trio's, so that
  virtual time moves its timestamps too. Pass ``cluster.transport()`` to an operator or an httpx client.
- ``cluster_url``: the same cluster, served on a port of the loopback interface during the test. It takes real time.
- ``deterministic``: the test runs the same way each time (see :func:`trioperator.testing.deterministic`).

Threads of operators pause mock clocks in all tests, with no fixture (see :mod:`trioperator.testing.autojump`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster

__all__ = ["cluster", "deterministic", "pytest_configure"]


def pytest_configure() -> None:
    """Make the threads of operators pause mock clocks in all tests."""
    from trioperator.testing.autojump import pause_autojump_for_threads

    pause_autojump_for_threads()


@pytest.fixture
def cluster() -> Cluster:
    """Return an in-memory Kubernetes API that contains only the default namespaces."""
    from trioperator.apiserver import Cluster
    from trioperator.clock import wall_now

    return Cluster(clock=wall_now, seed=0)


@pytest.fixture
def deterministic(request: pytest.FixtureRequest) -> Iterator[int]:
    """Make the test run the same way each time, and yield the seed: 0 or an indirect parameter."""
    from trioperator.testing.determinism import deterministic

    seed: int = getattr(request, "param", 0)
    with deterministic(seed):
        yield seed


try:
    import pytest_trio
except ImportError:  # no asynchronous fixtures without it
    pass
else:

    @pytest_trio.trio_fixture  # type: ignore[untyped-decorator]
    async def cluster_url(cluster: Cluster) -> AsyncIterator[str]:
        """Serve the test's cluster on a port, and yield its URL."""
        import trio

        from trioperator.apiserver import serve_cluster

        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve_cluster, cluster)
            yield url
            nursery.cancel_scope.cancel(reason="test ended")
