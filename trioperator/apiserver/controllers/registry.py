"""The controllers by the names under which they are switched on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trioperator.errors import ConfigError

from .controller import Controller
from .cronjobs import CronJobs
from .daemonsets import DaemonSets
from .deployments import Deployments
from .events import Events
from .garbage_collector import GarbageCollector
from .jobs import Jobs
from .pods import Pods
from .replicasets import ReplicaSets
from .service_accounts import ServiceAccounts
from .statefulsets import StatefulSets
from .volume_claims import Claims

__all__ = ["CONTROLLERS", "select_controllers"]

_KINDS: Final[Mapping[str, tuple[type[Controller], ...]]] = {
    "events": (Events,),
    "garbage-collector": (GarbageCollector,),
    "pods": (Pods,),
    "service-accounts": (ServiceAccounts,),
    "volumes": (Claims,),
    "workloads": (CronJobs, Deployments, DaemonSets, Jobs, ReplicaSets, StatefulSets),
}
CONTROLLERS: Final = tuple(sorted(_KINDS))


def select_controllers(names: Iterable[str]) -> tuple[type[Controller], ...]:
    """Return the controllers of the names, "all" being all of them; raise ConfigError for others."""
    found: dict[type[Controller], None] = {}
    for name in names:
        if name != "all" and name not in _KINDS:
            raise ConfigError(f"There is no controller {name!r}: there are all, {', '.join(CONTROLLERS)}.")
        for each in CONTROLLERS if name == "all" else (name,):
            found |= dict.fromkeys(_KINDS[each])
    return tuple(found)
