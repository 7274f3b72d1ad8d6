"""Fixtures of all tests: a real control plane, if its programs are installed."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import socket
import sys
import warnings
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tests.controlplane import EXAMPLES, HOW, ControlPlane

# How long an example takes is no property: machines are busy at times.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# For another Python: what depends on it shows in a few examples, and `--hypothesis-profile=brief` is enough.
hypothesis.settings.register_profile("brief", max_examples=20, deadline=None)

# Shells let processes in the background ignore Ctrl-C, and theirs do, too: tests send it to such processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


HERE = pathlib.Path(__file__).parent
# Where the tests on a real control plane are: they are all that is collected with `-m e2e`.
REAL = ("apiserver", "both", "docs", "e2e", "test_deploy.py")


def has_real(path: pathlib.Path) -> bool:
    """Return whether a file of this directory may have tests on a real control plane."""
    return path.relative_to(HERE).parts[:1] in [(), *((name,) for name in REAL)]


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    return True if config.option.markexpr == "e2e" and not has_real(collection_path) else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let workers of pytest-xdist send at once what pytest-rerunfailures asks for each test.

    It sends two messages without an answer in between. The second waits for the first to be acknowledged: 40 ms a test.
    """
    questions: socket.socket | None = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if questions is not None:
        questions.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE / "e2e" in item.path.parents:
            item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("e2e"):
            assert has_real(item.path), f"{item.path} has tests on a real control plane: add it to REAL"
            if not os.environ.get("KUBEBUILDER_ASSETS"):
                item.add_marker(pytest.mark.skip(reason=HOW))


def pytest_collection_finish() -> None:
    """Take the tests themselves, which live to the end, out of each garbage collection.

    With Python's default threshold, collecting takes a fifteenth of the CPU: the command has this one, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(30_000, *gc.get_threshold()[1:])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Discard what a failed attempt has left open in the frames of its traceback: that is no failure of the run."""
    if getattr(item, "execution_count", 1) > 1:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let workers of pytest-xdist report tests that log what is no Unicode."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def controlplane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("controlplane"), pathlib.Path(os.environ["KUBEBUILDER_ASSETS"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOGC", "400")  # garbage collection is a quarter of what kubectl does, and there is memory
        try:
            plane.start()
            plane.kubectl("apply", "-f", str(EXAMPLES / "crd.yaml"))
            plane.kubectl("wait", "--for=condition=Established", "crd/kopfexamples.kopf.dev", "--timeout=90s")
            yield plane
        finally:
            plane.stop()
