"""A plugin of pytest: what the suites of client libraries take from their repositories, and their packages lack.

These are modules that find the cluster, and the fixture that starts one for kr8s: here, both are of a running cluster.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest


def configure_kubernetes() -> Any:
    """Return the configuration of the library kubernetes for the current kubeconfig."""
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    return configuration


def configure_kubernetes_asyncio() -> Any:
    """Return the configuration of kubernetes_asyncio for the current kubeconfig."""
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    asyncio.run(config.load_kube_config(client_configuration=configuration))
    return configuration


for name, configure in (
    ("kubernetes", configure_kubernetes),
    ("kubernetes_asyncio", configure_kubernetes_asyncio),
):
    base = types.ModuleType(f"{name}.e2e_test.base")
    base.get_e2e_configuration = configure  # type: ignore[attr-defined]
    package = types.ModuleType(f"{name}.e2e_test")
    package.base = base  # type: ignore[attr-defined]
    sys.modules |= {package.__name__: package, base.__name__: base}


class RunningCluster:
    """The cluster of the current kubeconfig, as the suite of kr8s sees one that it has started."""

    def __init__(self) -> None:
        self.kubeconfig_path = pathlib.Path(os.environ["KUBECONFIG"])

    def kubectl(self, *args: str) -> str:
        """Return what kubectl prints."""
        return subprocess.run(["kubectl", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="session")
def k8s_cluster() -> RunningCluster:
    """Return the running cluster."""
    return RunningCluster()


@pytest.fixture
def ensure_gc() -> Iterator[None]:
    """Collect garbage before and after the test."""
    gc.collect()
    yield
    gc.collect()
