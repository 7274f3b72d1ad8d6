"""Tests for :mod:`trioperator.testing.plugin`, in a separate pytest."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from trioperator.apiserver import Cluster

ROOT = Path(__file__).parents[2]


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_fixtures_work_without_configuration(tmp_path: Path) -> None:
    source = """
        import httpx, pytest, trio

        @pytest.mark.trio
        async def test_in_memory(cluster, autojump_clock):
            async with cluster.client() as client:
                assert (await client.get("/readyz")).text == "ok"

        @pytest.mark.trio
        async def test_on_a_port(cluster_url):
            async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
                assert (await client.get("/readyz")).text == "ok"
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    plugin = [] if "trioperator" in _entry_points() else ["-p", "trioperator.testing.plugin"]
    result = run("-m", "pytest", "-q", *plugin, cwd=tmp_path)
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def _entry_points() -> set[str]:
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group="pytest11")}


def test_each_test_has_its_own_cluster(cluster: Cluster) -> None:
    assert isinstance(cluster, Cluster)
    assert cluster.revision == 4  # the default namespaces


def test_the_package_and_the_plugin_load_lazily() -> None:
    code = "import sys; sys.modules['trioperator'] = type(sys)('trioperator'); "
    code += f"sys.modules['trioperator'].__path__ = [{str(ROOT / 'trioperator')!r}]; "
    code += "import trioperator.testing, trioperator.testing.plugin; "
    code += "print([name for name in ('httpx', 'yaml', 'trioperator.apiserver') if name in sys.modules])"
    result = run("-c", code, cwd=ROOT)
    assert result.stdout.strip() == "[]", result.stderr
