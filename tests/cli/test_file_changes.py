"""Tests for :mod:`trioperator.cli.file_changes`: real files that change while, and before, they are watched."""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from trioperator.cli.file_changes import Snapshot, check_installed, wait_for_change
from trioperator.errors import ConfigError


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    for path in paths:
        path.write_text("1")
    return [str(path) for path in paths]


async def change_while_waiting(wait: Callable[[], Awaitable[str]], change: Callable[[], object]) -> str:
    found: list[str] = []

    async def note() -> None:
        found.append(await wait())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(note)
            await trio.testing.wait_all_tasks_blocked()
            change()
    return found[0]


async def test_a_change_ends_the_wait(files: list[str], tmp_path: pathlib.Path) -> None:
    wait = functools.partial(wait_for_change, files, [], Snapshot.take(files))
    assert await change_while_waiting(wait, lambda: (tmp_path / "two.py").write_text("22")) == files[1]


async def test_a_file_that_is_replaced_has_changed(files: list[str], tmp_path: pathlib.Path) -> None:
    def replace() -> None:
        (tmp_path / "two.tmp").write_text("22")
        (tmp_path / "two.tmp").replace(tmp_path / "two.py")

    assert (
        await change_while_waiting(functools.partial(wait_for_change, files, [], Snapshot.take(files)), replace)
        == files[1]
    )


async def test_other_files_do_not_count(files: list[str], tmp_path: pathlib.Path) -> None:
    def change() -> None:
        (tmp_path / "other.py").write_text("3")
        (tmp_path / "zero.txt").write_text("3")
        (tmp_path / "two.py").write_text("22")

    assert (
        await change_while_waiting(functools.partial(wait_for_change, files, [], Snapshot.take(files)), change)
        == files[1]
    )


async def test_new_sources_in_the_directories_count_where_an_import_has_failed(
    files: list[str], tmp_path: pathlib.Path
) -> None:
    wait = functools.partial(wait_for_change, files, [str(tmp_path), "/does/not/exist"], Snapshot.take(files), new=True)
    assert await change_while_waiting(wait, lambda: (tmp_path / "other.py").write_text("3")) == str(
        tmp_path / "other.py"
    )


async def test_what_has_changed_before_is_noticed(files: list[str], tmp_path: pathlib.Path) -> None:
    before = Snapshot.take(files)
    (tmp_path / "one.py").write_text("11")
    with trio.fail_after(60):
        assert await wait_for_change(files, [], before) == files[0]


async def test_a_new_source_from_before_is_noticed(files: list[str], tmp_path: pathlib.Path) -> None:
    before = Snapshot.take(files)
    other = tmp_path / "other.py"
    other.write_text("3")
    os.utime(other, ns=(before.time + 1, before.time + 1))
    with trio.fail_after(60):
        assert await wait_for_change(files, [], before, new=True) == str(other)


async def test_cancelling_the_wait_ends_its_thread(files: list[str]) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_change, files, [], Snapshot.take(files))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


def test_files_that_appear_and_vanish_have_changed(files: list[str], tmp_path: pathlib.Path) -> None:
    before = Snapshot.take(files)
    assert before.find_changed(files) is None
    new = tmp_path / "new.py"
    new.write_text("1")
    os.utime(new, ns=(before.time - 1, before.time - 1))
    assert before.find_changed([*files, str(new)]) is None
    os.utime(new, ns=(before.time + 1, before.time + 1))
    assert before.find_changed([*files, str(new)]) == str(new)
    (tmp_path / "one.py").unlink()
    assert before.find_changed(files) == files[0]


def test_the_package_that_it_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ConfigError, match=r"pip install 'trioperator\[reload\]'"):
        check_installed()
