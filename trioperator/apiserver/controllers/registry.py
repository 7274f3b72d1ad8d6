"""Controllers by the names that enable them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trioperator.errors import ConfigError

from .controller import Controller
from .cronjobs import CronJobController
from .daemonsets import DaemonSetController
from .deployments import DeploymentController
from .housekeeping import EventController, GarbageCollector, ServiceAccountController
from .jobs import JobController
from .pods import PodController
from .quotas import QuotaController
from .replicasets import ReplicaSetController, ReplicationControllerController
from .statefulsets import StatefulSetController
from .volume_claims import VolumeClaimController

_KINDS: Final[Mapping[str, tuple[type[Controller], ...]]] = {
    "events": (EventController,),
    "garbage-collector": (GarbageCollector,),
    "pods": (PodController,),
    "quotas": (QuotaController,),
    "service-accounts": (ServiceAccountController,),
    "volumes": (VolumeClaimController,),
    "workloads": (
        CronJobController,
        DeploymentController,
        DaemonSetController,
        JobController,
        ReplicaSetController,
        ReplicationControllerController,
        StatefulSetController,
    ),
}
CONTROLLERS: Final = tuple(sorted(_KINDS))


def select_controllers(names: Iterable[str]) -> tuple[type[Controller], ...]:
    """Return the controllers with the names, or all for "all". Raises ConfigError for unknown names."""
    found: dict[type[Controller], None] = {}
    for name in names:
        if name != "all" and name not in _KINDS:
            raise ConfigError(f"Unknown controller {name!r}: choose from all, {', '.join(CONTROLLERS)}.")
        for each in CONTROLLERS if name == "all" else (name,):
            found |= dict.fromkeys(_KINDS[each])
    return tuple(found)
