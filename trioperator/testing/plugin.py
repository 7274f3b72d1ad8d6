"""The pytest plugin: fixtures for tests of operators. It imports nothing heavy until a fixture is requested.

- ``cluster``: a fresh in-memory Kubernetes API (:class:`trioperator.apiserver.Cluster`), whose time is Trio's, so that
  virtual time moves its timestamps too. Pass ``cluster.transport()`` to an operator or an httpx client.
- ``cluster_url``: URL of the same cluster, served on a port of the loopback interface. It needs real time.
- ``operator``: an operator on that cluster, which the test starts; what it does is recorded and checked
  (:class:`trioperator.testing.OperatorRunner`).
- ``deterministic``: the test runs the same way each time (see :func:`trioperator.testing.deterministic`).

In all tests, even without these fixtures, threads of operators pause mock clocks: see
:mod:`trioperator.testing.autojump`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from trioperator.apiserver import Cluster
    from trioperator.testing.operator_runner import OperatorRunner
    from trioperator.testing.rights import LackedRights

_RUNNERS: Final[pytest.StashKey[list[OperatorRunner]]] = pytest.StashKey()
# By handlers, what is missing, as it was found in one test or the other; and its key in what a worker of pytest-xdist
# sends at its end.
_RIGHTS: Final[pytest.StashKey[dict[str, LackedRights]]] = pytest.StashKey()
_SENT: Final = "trioperator-rights"


class _PlainFinder(MetaPathFinder):
    """Finder of the modules of this package for plain imports, with the bytecode that is installed.

    pytest rewrites the assertions in all modules of a package with a plugin, and compiles hundreds of them when tests
    run for the first time. That may take longer than the tests, and there is nothing to rewrite.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, path, target) if fullname.startswith("trioperator.") else None


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import the rest of this package without rewriting its assertions."""
    finder = _PlainFinder()
    sys.meta_path.insert(0, finder)
    early_config.add_cleanup(lambda: sys.meta_path.remove(finder))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the plugin."""
    text = "show at the end which rights= handlers lack for what they have requested from the fixture `operator` on"
    parser.getgroup("trioperator").addoption("--operator-rights", action="store_true", help=text)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show which rights were missing, with --operator-rights."""
    if config.getoption("--operator-rights"):
        found = config.stash.get(_RIGHTS, {})
        terminalreporter.section("rights of handlers")
        for missing in found.values():
            terminalreporter.write_line(str(missing))
        if not found:
            terminalreporter.write_line("The generated role allows all that handlers have requested.")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: send which rights were missing."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and _RIGHTS in session.config.stash:
        import msgspec

        output[_SENT] = msgspec.msgpack.encode(list(session.config.stash[_RIGHTS].values()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive what a worker of pytest-xdist has sent."""
    sent = getattr(node, "workeroutput", {}).get(_SENT)
    if sent is not None:
        import msgspec

        from trioperator.testing.rights import LackedRights

        _add_rights(node.config, msgspec.msgpack.decode(sent, type=list[LackedRights]))


def pytest_configure() -> None:
    """Make the threads of operators pause mock clocks in all tests."""
    from trioperator.testing.autojump import pause_autojump_for_threads

    pause_autojump_for_threads()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Let Ctrl-C end the tests, and report what operators have done wrong.

    pytest does not recognize a KeyboardInterrupt in the exception groups of nurseries. Tests of operators fail with a
    single error itself instead of its group, and with what their operators have done wrong.
    """
    item.stash[_RUNNERS] = []  # without those of an earlier run of the same test: some plugins run failed tests again
    try:
        yield
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            raise KeyboardInterrupt from group
        if not item.stash[_RUNNERS]:
            raise
        from trioperator._model.exception_groups import unwrap_group

        error = unwrap_group(group)
        _add_problems(item, error)
        raise error from error.__cause__
    except Exception as error:
        _add_problems(item, error)
        raise
    problems = [problem for runner in item.stash[_RUNNERS] for problem in runner.problems]
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)


def _add_rights(config: pytest.Config, missing: Iterable[LackedRights]) -> None:
    """Add what one test has found to what the others have found."""
    from trioperator.testing.rights import LackedRights

    found = config.stash.setdefault(_RIGHTS, {})
    for each in missing:
        found[each.description] = found.get(each.description, LackedRights(each.description)).merge(each)


def _add_problems(item: pytest.Item, error: BaseException) -> None:
    """Add what the operators of a failed test have done wrong, which may be why it has failed."""
    for runner in item.stash[_RUNNERS]:
        for problem in runner.problems:
            error.add_note(problem)


@pytest.fixture
def cluster() -> Cluster:
    """Return an in-memory Kubernetes API that contains only the default namespaces."""
    from trioperator._concurrency.clock import wall_now
    from trioperator.apiserver import Cluster

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

    @pytest_trio.trio_fixture  # type: ignore[untyped-decorator]  # of a library without types
    async def cluster_url(cluster: Cluster) -> AsyncIterator[str]:
        """Serve the test's cluster on a port, and yield its URL."""
        import trio

        from trioperator.apiserver import serve_cluster

        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(serve_cluster, cluster)
            yield url
            nursery.cancel_scope.cancel(reason="test ended")

    @pytest_trio.trio_fixture  # type: ignore[untyped-decorator]  # of a library without types
    async def operator(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[OperatorRunner]:
        """Yield an operator on the test's cluster, which the test starts: ``await operator.start("main.py")``.

        At the end, the test fails if a handler has failed unexpectedly, a task has leaked, or a deletion is stuck. See
        :class:`trioperator.testing.OperatorRunner`.
        """
        from trioperator.testing.operator_runner import open_unchecked_runner

        async with open_unchecked_runner(cluster, module=request.module.__name__) as runner:
            request.node.stash[_RUNNERS].append(runner)
            yield runner
            if request.config.getoption("--operator-rights") and runner.has_started:
                _add_rights(request.config, await runner.find_missing_rights())
