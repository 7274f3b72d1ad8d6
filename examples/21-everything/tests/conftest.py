"""An operator with a database, in virtual time and on simulated nodes."""

import pathlib
import tomllib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

HERE = pathlib.Path(__file__).parents[1]
MODULES = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["trioperator"]["modules"]


def read_example(**spec: Any) -> list[dict[str, Any]]:
    """Return the database of the example, with some of its spec, and the Secret with its settings."""
    database, settings = yaml.safe_load_all((HERE / "examples" / "database.yaml").read_text())
    database["spec"] |= spec
    return [database, settings]


@pytest.fixture
async def database(cluster: Cluster, operator: OperatorRunner) -> AsyncIterator[None]:
    """Run the operator with a database that is ready."""
    async with cluster.open_controllers():
        await operator.start(*MODULES)
        await cluster.apply(read_example())
        await cluster.wait_for("databases", "orders", "Ready")
        yield
