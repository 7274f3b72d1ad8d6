"""Clusters with a data file: acknowledged writes survive restarts, crashes and disk errors."""

# ruff: noqa: ASYNC240 -- the file is looked at while nothing else runs

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.apiserver.conftest import definition, watch
from trioperator.apiserver import Cluster, open_cluster
from trioperator.apiserver.store.data_file import DataFile
from trioperator.errors import ApiError, ConfigError, DataFileError

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


@pytest.fixture
def path(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the path of a data file, which must not be open afterwards."""
    path = tmp_path / "cluster.data"
    yield path
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    assert [link for link in links if os.path.exists(link) and os.readlink(link).startswith(str(path))] == []


async def names(cluster: Cluster, kind: str = "cm") -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind)]


class TestRestart:
    async def test_a_restart_restores_everything(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply(definition("frees", "Free"))
            await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
            await cluster.apply({"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": "f"}}, "team")
            await cluster.apply([config_map("a"), config_map("b"), config_map("c")])
            await cluster.patch("cm", "a", {"data": {"text": "ü1\n2"}})
            await cluster.delete("cm", "b")
            kinds = ["cm", "ns", "crd", "frees"]
            before = [await cluster.list(kind) for kind in kinds], cluster.revision
        async with open_cluster(path) as cluster:
            assert ([await cluster.list(kind) for kind in kinds], cluster.revision) == before
            created = await cluster.apply(
                {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": "g"}}
            )
            assert int(created[0]["metadata"]["resourceVersion"]) == cluster.revision == before[1] + 1

    async def test_the_revision_continues_after_a_deletion(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply(config_map("a"))
            await cluster.delete("cm", "a")
            before = cluster.revision
        async with open_cluster(path) as cluster:
            assert cluster.revision == before

    async def test_a_restart_discards_the_history(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply(config_map("a"))
            before = cluster.revision
            await cluster.apply(config_map("b"))
        async with open_cluster(path) as cluster, cluster.client() as client:
            [(_, event)] = await watch(client, CONFIG_MAPS, resourceVersion=before)
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            await cluster.apply(config_map("c"))
            [(_, event)] = await watch(client, CONFIG_MAPS, 1, resourceVersion=before + 1)
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "c")

    async def test_uids_are_not_reused(self, path: pathlib.Path) -> None:
        uids = set()
        for number in range(3):
            async with open_cluster(path, seed=1) as cluster:
                await cluster.apply(config_map(f"n{number}"))
                uids |= {obj["metadata"]["uid"] for kind in ("ns", "cm") for obj in await cluster.list(kind)}
        assert len(uids) == 4 + 3

    async def test_garbage_collection_and_deletions_continue_after_a_restart(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            [owner] = await cluster.apply(config_map("owner"))
            meta = {key: owner["metadata"][key] for key in ("name", "uid")}
            reference = {"apiVersion": "v1", "kind": "ConfigMap", **meta}
            await cluster.apply(config_map("owned", ownerReferences=[reference]))
            await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
            await cluster.apply(config_map("held", namespace="team", finalizers=["a.b/c"]))
            await cluster.delete("ns", "team")
        async with open_cluster(path) as cluster:
            await cluster.delete("cm", "owner")
            assert await cluster.find("cm", "owned") is None
            assert (await cluster.get("ns", "team"))["status"]["phase"] == "Terminating"
            await cluster.patch("cm", "held", {"metadata": {"finalizers": None}}, "team")
            assert await cluster.find("ns", "team") is None

    async def test_a_terminating_definition_is_deleted_after_a_restart(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply(definition("frees", "Free"))
            obj = {
                "apiVersion": "conformance.dev/v1",
                "kind": "Free",
                "metadata": {"name": "f", "finalizers": ["a.b/c"]},
            }
            await cluster.apply(obj)
            await cluster.delete("crd", "frees.conformance.dev")
        async with open_cluster(path) as cluster:
            await cluster.patch("frees", "f", {"metadata": {"finalizers": None}})
            assert await cluster.list("crd") == []
        async with open_cluster(path) as cluster:
            with pytest.raises(ConfigError, match="no resource 'frees'"):
                await cluster.list("frees")

    async def test_a_truncated_log_restores_an_earlier_state(self, path: pathlib.Path) -> None:
        states: dict[int, list[str]] = {}
        log, copy = path.with_name(f"{path.name}-wal"), path.with_name("copy")
        async with open_cluster(path) as cluster:
            for number in range(5):
                await cluster.apply(config_map(f"n{number}"))
                states[cluster.revision] = await names(cluster)
            database, written = path.read_bytes(), log.read_bytes()
        for cut in range(0, len(written), 997):
            copy.write_bytes(database)
            copy.with_name("copy-wal").write_bytes(written[:cut])
            async with open_cluster(copy) as cluster:
                assert await names(cluster) == states.get(cluster.revision, [])
                await cluster.apply(config_map("more"))
            async with open_cluster(copy) as cluster:
                assert "more" in await names(cluster)


KINDS = {"cm": "ConfigMap", "ns": "Namespace", "frees": "Free"}
places = st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["a", "b"]), st.sampled_from(["default", "a"]))
actions = st.lists(
    st.tuples(
        places, st.sampled_from(["create", "create", "patch", "hold", "release", "own", "delete", "drop"]), places
    ),
    max_size=25,
)
Place = tuple[str, str, str]


async def act(cluster: Cluster, place: Place, action: str, other: Place) -> None:
    """Send a random request, which may be rejected."""
    kind, name, namespace = place
    with contextlib.suppress(ApiError, ConfigError):
        if action == "create":
            if kind == "frees":
                await cluster.apply(definition("frees", "Free"))
            api_version = "conformance.dev/v1" if kind == "frees" else "v1"
            meta = {"name": name} if kind == "ns" else {"name": name, "namespace": namespace}
            await cluster.create({"apiVersion": api_version, "kind": KINDS[kind], "metadata": meta})
        elif action == "own":
            owner = await cluster.get(*other)
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": other[1]}
            references = [{**reference, "uid": owner["metadata"]["uid"]}]
            await cluster.patch(kind, name, {"metadata": {"ownerReferences": references}}, namespace)
        elif action == "delete":
            await cluster.delete(kind, name, namespace, policy="Foreground" if other[1] == "a" else "")
        elif action == "drop":
            await cluster.delete("crd", "frees.conformance.dev")
        else:
            labels, finalizers = {"labels": {"x": other[1]}}, {"finalizers": ["a.b/c"] if action == "hold" else None}
            patch = {"metadata": labels if action == "patch" else finalizers}
            await cluster.patch(kind, name, patch, namespace)


def content(cluster: Cluster) -> tuple[int, dict[str, dict[str, bytes]], list[str]]:
    """Return the revision, all objects, and the kinds that are served."""
    store, catalog = cluster.api.state.store, cluster.api.state.catalog
    tables = {
        ".".join(resource): {key: stored.raw for key, stored in table.objects.items()}
        for resource, table in sorted(store.tables.items())
        if table.objects
    }
    return store.revision, tables, catalog.groups()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions)
def test_the_file_matches_the_cluster_at_any_time(steps: list[tuple[Place, str, Place]]) -> None:
    async def main(folder: pathlib.Path) -> None:
        path, copy = folder / "data", folder / "copy"
        file = DataFile.open(path)
        cluster = Cluster(data=file)
        await file.flush()
        for number, step in enumerate(steps):
            await act(cluster, *step)
            if number % 4 == 0 or step is steps[-1]:
                for suffix in ("", "-wal"):  # as if the process had been killed now
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
                async with open_cluster(copy) as other:
                    assert content(other) == content(cluster)
        file.close()

    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, pathlib.Path(folder))


class Disk:
    """Layer between the data file and the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.seconds = 0.0  # of a sync
        self.begun = trio.Event()
        self.error: sqlite3.Error | None = None
        self.gate = threading.Event()
        self.gate.set()
        commit = DataFile._commit
        self._token = trio.lowlevel.current_trio_token()

        def slowly(file: DataFile, *args: Any) -> None:
            self._wait()
            commit(file, *args)

        monkeypatch.setattr(DataFile, "_commit", slowly)

    def _wait(self) -> None:
        self.syncs += 1
        self._token.run_sync_soon(self.begun.set)
        self.gate.wait(20)
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class TestWriting:
    async def test_changes_are_not_visible_before_they_are_synced(self, path: pathlib.Path, disk: Disk) -> None:
        told: list[str] = []

        async def create() -> None:
            await client.post(CONFIG_MAPS, json=config_map("a"))
            told.append("create")

        async def read() -> None:
            await client.get(f"{CONFIG_MAPS}/a")
            told.append("read")

        async def follow() -> None:
            await watch(client, CONFIG_MAPS, 1, resourceVersion=0)
            told.append("watch")

        async with open_cluster(path) as cluster, cluster.client() as client:
            disk.begun = trio.Event()
            disk.gate.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                await disk.begun.wait()
                nursery.start_soon(read)
                nursery.start_soon(follow)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert told == []
                disk.gate.set()
        assert sorted(told) == ["create", "read", "watch"]

    async def test_concurrent_writes_share_a_sync(self, path: pathlib.Path, disk: Disk) -> None:
        async with open_cluster(path) as cluster:
            disk.begun, disk.syncs = trio.Event(), 0
            disk.gate.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.create, config_map("first"))
                await disk.begun.wait()
                for number in range(50):
                    nursery.start_soon(cluster.create, config_map(f"n{number}"))
                await trio.testing.wait_all_tasks_blocked(0.01)
                disk.gate.set()
            assert disk.syncs == 2
        async with open_cluster(path) as cluster:
            assert len(await names(cluster)) == 51

    async def test_a_mock_clock_stands_still_while_the_disk_works(
        self, path: pathlib.Path, disk: Disk, autojump_clock: MockClock
    ) -> None:
        disk.seconds = 0.05
        with trio.move_on_after(3600) as scope:
            async with open_cluster(path) as cluster:
                await cluster.create(config_map("a"))
        assert not scope.cancelled_caught
        assert disk.syncs > 1
        assert trio.current_time() == 0

    async def test_a_cancelled_write_does_not_corrupt_the_file(self, path: pathlib.Path, disk: Disk) -> None:
        async with open_cluster(path) as cluster:
            with trio.CancelScope() as scope:
                scope.cancel()
                await cluster.create(config_map("cancelled"))
            await cluster.create(config_map("other"))
        async with open_cluster(path) as cluster:
            assert await names(cluster) == ["cancelled", "other"]

    async def test_writes_fail_after_a_disk_error(self, path: pathlib.Path, disk: Disk) -> None:
        with pytest.raises(DataFileError, match=r"cluster\.data cannot be written: database or disk is full\."):
            async with open_cluster(path) as cluster:
                await cluster.create(config_map("a"))
                disk.error = sqlite3.OperationalError("database or disk is full")
                with pytest.raises(DataFileError):
                    await cluster.create(config_map("b"))
                disk.error = None
                with pytest.raises(DataFileError):
                    await cluster.create(config_map("c"))
                async with cluster.client() as client:
                    with pytest.raises(DataFileError):
                        await client.get(CONFIG_MAPS)
        async with open_cluster(path) as cluster:
            assert (await names(cluster))[0] == "a"

    async def test_changes_do_not_let_the_files_grow(self, path: pathlib.Path) -> None:
        file = DataFile.open(path)
        cluster = Cluster(data=file)
        await cluster.apply([config_map("a"), config_map("b")])
        await cluster.delete("cm", "b")
        file.set_fact("name", "value\nof two lines")
        for number in range(600):
            await cluster.patch("cm", "a", {"data": {"x": f"{number:500}"}})
        assert sum(each.stat().st_size for each in path.parent.iterdir()) < 6_000_000
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
        file.close()
        assert os.listdir(path.parent) == [path.name]
        again = DataFile.open(path)
        assert again.facts["name"] == "value\nof two lines"
        cluster = Cluster(data=again)
        assert await names(cluster) == ["a"]
        assert (await cluster.get("cm", "a"))["data"] == {"x": f"{599:500}"}
        again.close()


class TestOpening:
    async def test_a_new_file_is_readable_by_its_owner_only(self, path: pathlib.Path) -> None:
        async with open_cluster(path):
            pass
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_an_existing_file_becomes_readable_by_its_owner_only(self, path: pathlib.Path) -> None:
        async with open_cluster(path):
            pass
        path.chmod(0o644)
        async with open_cluster(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def test_a_foreign_file_keeps_its_permissions(self, path: pathlib.Path) -> None:
        path.write_text("mine")
        path.chmod(0o644)
        with pytest.raises(ConfigError, match="not a data file"):
            await open_cluster(path).__aenter__()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    @pytest.mark.parametrize("exists", [True, False])
    async def test_a_symlink_is_not_followed(self, path: pathlib.Path, exists: bool) -> None:
        target = path.with_name("target")
        if exists:
            async with open_cluster(target):
                pass
        path.symlink_to(target)
        with pytest.raises(ConfigError, match="cannot be opened: it is a symbolic link, which is not followed"):
            await open_cluster(path).__aenter__()
        assert target.exists() is exists

    async def test_a_directory_may_be_a_symlink(self, path: pathlib.Path) -> None:
        path.with_name("real").mkdir()
        path.with_name("link").symlink_to("real")
        async with open_cluster(path.with_name("link") / "data"):
            assert (path.with_name("real") / "data").exists()

    async def test_a_file_in_use_is_rejected(self, path: pathlib.Path) -> None:
        async with open_cluster(path):
            with pytest.raises(ConfigError, match=r"cluster\.data cannot be opened: another process is using it\.$"):
                async with open_cluster(path):
                    pass

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (".", "it is not a regular file"),
            ("none/x", "No such file or directory"),
            ("fifo", "it is not a regular file"),
        ],
    )
    async def test_a_file_that_cannot_be_opened_is_an_error(
        self, tmp_path: pathlib.Path, name: str, message: str
    ) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(ConfigError, match=f"cannot be opened: {message}."):
            async with open_cluster(tmp_path / name):
                pass

    async def test_a_foreign_file_is_not_changed(self, path: pathlib.Path) -> None:
        path.write_text("notes of mine\n")
        with pytest.raises(ConfigError, match="not a data file of a cluster: file is not a database"):
            async with open_cluster(path):
                pass
        assert path.read_text() == "notes of mine\n"

    async def test_a_database_of_something_else_is_not_changed(self, path: pathlib.Path) -> None:
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE notes (text)")
        database.close()
        before = path.read_bytes()
        with pytest.raises(ConfigError, match="not a data file of a cluster: it is a database of something else"):
            async with open_cluster(path):
                pass
        assert path.read_bytes() == before

    async def test_corruption_is_reported(self, path: pathlib.Path) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply([config_map(f"n{number}") for number in range(100)])
        content = path.read_bytes()
        path.write_bytes(content[:4096] + bytes(4096) + content[8192:])
        with pytest.raises(ConfigError, match="is corrupt, or not a data file of a cluster"):
            async with open_cluster(path):
                pass

    async def test_an_object_that_cannot_be_decoded_is_reported_and_left_out(
        self, path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_cluster(path) as cluster:
            await cluster.apply([config_map("a"), config_map("b")])
        database = sqlite3.connect(path)
        database.execute("UPDATE objects SET content = ? WHERE key = ?", (b"[" * 3000, "default/b"))
        database.commit()
        database.close()
        async with open_cluster(path) as cluster:
            assert await names(cluster) == ["a"]
        assert "default/b of configmaps cannot be used, and is left out" in caplog.text
