"""The pytest plugin: fixtures for operators under test. It imports nothing heavy until a fixture is asked for.

- ``cluster``: a fresh in-memory Kubernetes API (:class:`trioperator.apiserver.Cluster`), whose time is Trio's, so that
  virtual time moves its time stamps, too. ``cluster.transport()`` goes into an operator or an httpx client.
- ``cluster_url``: the same cluster served on a port of the loopback interface, as long as the test runs. It takes
  real time.
- ``deterministic``: the test goes the same way in each run (see :func:`trioperator.testing.deterministic`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster

__all__ = ["cluster", "deterministic", "pytest_configure"]


def pytest_configure() -> None:
    """Make the threads of operators pause mock clocks, in all tests and with no fixture."""
    from trioperator.testing.autojump import pause_autojump_for_threads

    pause_autojump_for_threads()


@pytest.fixture
def cluster() -> Cluster:
    """Make an in-memory Kubernetes API with nothing in it but the default namespaces."""
    from trioperator.apiserver import Cluster
    from trioperator.clock import wall_now

    return Cluster(clock=wall_now, seed=0)


@pytest.fixture
def deterministic(request: pytest.FixtureRequest) -> Iterator[int]:
    """Let the test go the same way in each run; gives the seed, which is 0 or an indirect parameter."""
    from trioperator.testing.determinism import deterministic

    seed: int = getattr(request, "param", 0)
    with deterministic(seed):
        yield seed


try:
    import pytest_trio
except ImportError:  # without it there are no asynchronous fixtures
    pass
else:

    @pytest_trio.trio_fixture  # type: ignore[untyped-decorator]
    async def cluster_url(cluster: Cluster) -> AsyncIterator[str]:
        """Serve the test's cluster on a port, and give its URL."""
        import trio

        from trioperator.apiserver import serve_cluster

        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve_cluster, cluster)
            yield url
            nursery.cancel_scope.cancel(reason="the test has ended")
