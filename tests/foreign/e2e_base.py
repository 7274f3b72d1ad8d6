"""A plugin of pytest: the module ``kubernetes.e2e_test.base``, which the package lacks, and its own tests need."""

from __future__ import annotations

import sys
import types
from typing import Any


def get_e2e_configuration() -> Any:
    """Return the configuration for the cluster of the current kubeconfig."""
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    return configuration


base = types.ModuleType("kubernetes.e2e_test.base")
base.get_e2e_configuration = get_e2e_configuration  # type: ignore[attr-defined]
package = types.ModuleType("kubernetes.e2e_test")
package.base = base  # type: ignore[attr-defined]
sys.modules |= {"kubernetes.e2e_test": package, "kubernetes.e2e_test.base": base}
