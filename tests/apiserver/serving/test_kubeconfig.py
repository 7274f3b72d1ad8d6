"""Kubeconfigs of embedded clusters: private, written atomically, and never over foreign files."""

from __future__ import annotations

import json
import os
import pathlib
import stat

import pytest

from trioperator.apiserver import Cluster, write_kubeconfig
from trioperator.errors import ConfigError


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "kubeconfig"


def test_it_is_readable_by_its_owner_only_and_no_temporary_file_is_left(cluster: Cluster, path: pathlib.Path) -> None:
    content = cluster.kubeconfig("http://127.0.0.1:1")
    write_kubeconfig(path, content)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == content
    assert os.listdir(path.parent) == [path.name]


def test_a_kubeconfig_of_trioperator_is_replaced(cluster: Cluster, path: pathlib.Path) -> None:
    write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:1"))
    path.chmod(0o644)
    write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:2"))
    assert "127.0.0.1:2" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("exists", [True, False])
def test_a_symlink_is_not_followed(cluster: Cluster, path: pathlib.Path, exists: bool) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    if exists:
        write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:1"))
    with pytest.raises(ConfigError, match="link cannot be written: it is a symbolic link, which is not followed"):
        write_kubeconfig(link, cluster.kubeconfig("http://127.0.0.1:2"))
    assert link.is_symlink()
    assert path.exists() is exists
    assert not exists or "127.0.0.1:1" in path.read_text()


def test_the_temporary_file_cannot_be_prepared(cluster: Cluster, path: pathlib.Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("old")
    path.with_name(f".{path.name}.new").symlink_to(victim)
    write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:1"))
    assert victim.read_text() == "old"


def test_a_pipe_is_not_read(cluster: Cluster, path: pathlib.Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is not overwritten"):
        write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    "content",
    ["", "apiVersion: v1\nkind: Config\n", "{}", "[]", "5", '{"clusters": [{"name": "a", "cluster": {}}]}', "\xff"],
)
def test_a_foreign_file_is_not_overwritten(cluster: Cluster, path: pathlib.Path, content: str) -> None:
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not overwritten: choose another name, or remove it"):
        write_kubeconfig(path, cluster.kubeconfig("http://127.0.0.1:1"))
    assert path.read_bytes() == content.encode("latin-1")


def test_a_path_that_cannot_be_written_is_an_error(cluster: Cluster, path: pathlib.Path) -> None:
    content = cluster.kubeconfig("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        write_kubeconfig(path / "below", content)
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be written: Is a directory"):
        write_kubeconfig(path, content)
