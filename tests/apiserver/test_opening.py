"""Tests for :mod:`trioperator.apiserver.opening`; what files survive is tested in ``store/test_data_file.py``."""

from __future__ import annotations

import pathlib

import pytest

from trioperator.apiserver import open_cluster
from trioperator.errors import ConfigError


async def test_objects_survive_a_reopening_of_their_file(tmp_path: pathlib.Path) -> None:
    async with open_cluster(tmp_path / "data") as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
        with pytest.raises(ConfigError, match="another process is using it"):
            async with open_cluster(tmp_path / "data"):
                pass
    async with open_cluster(tmp_path / "data") as cluster:
        assert (await cluster.get("configmaps", "c"))["metadata"]["name"] == "c"
