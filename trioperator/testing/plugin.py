"""The pytest plugin: fixtures for tests of operators. It imports nothing heavy until a fixture is requested.

- ``cluster``: a fresh in-memory Kubernetes API (:class:`trioperator.apiserver.Cluster`), whose time is Trio's, so that
  virtual time moves its timestamps too. Pass ``cluster.transport()`` to an operator or an httpx client.
- ``cluster_url``: the same cluster, served on a port of the loopback interface during the test. It takes real time.
- ``start_operator``: starts operators on that cluster, which leave signals to pytest.
- ``deterministic``: the test runs the same way each time (see :func:`trioperator.testing.deterministic`).

Threads of operators pause mock clocks in all tests, with no fixture (see :mod:`trioperator.testing.autojump`).
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster

__all__ = ["cluster", "deterministic", "pytest_configure", "pytest_runtest_call"]


def pytest_configure() -> None:
    """Make the threads of operators pause mock clocks in all tests."""
    from trioperator.testing.autojump import pause_autojump_for_threads

    pause_autojump_for_threads()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let Ctrl-C end the tests: pytest knows a KeyboardInterrupt only without the exception groups of nurseries."""
    try:
        yield
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise KeyboardInterrupt from group


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

    @pytest_trio.trio_fixture  # type: ignore[untyped-decorator]
    async def start_operator(cluster: Cluster) -> AsyncIterator[Callable[..., Awaitable[None]]]:
        """Yield a function that starts an operator on the test's cluster, and returns when the operator is ready.

        It takes the options of ``operator()``. The operator leaves signals to pytest, and is cancelled after the test.
        """
        import trio

        from trioperator.app import operator
        from trioperator.kube.connection_info import ConnectionInfo

        async with trio.open_nursery() as nursery:

            async def start(**options: Any) -> None:
                own = {"transport": cluster.transport(), "connection": ConnectionInfo(server="http://cluster")}
                await nursery.start(functools.partial(operator, **{**own, "handle_signals": False, **options}))

            yield start
            nursery.cancel_scope.cancel(reason="test ended")
