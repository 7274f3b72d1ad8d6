"""Settings of peering and of leader election."""

from __future__ import annotations

from typing import ClassVar

from trioperator.errors import ConfigError
from trioperator.settings.rules import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NAMESPACE,
    OBJECT_NAME,
    TEXT,
    TIMEOUT,
    Section,
    section,
    setting,
)


@section
class PeeringSettings(Section):
    """Settings of peering with other operators: see docs/settings.md."""

    _path: ClassVar[str] = "settings.peering"

    name: str = setting("default", OBJECT_NAME)
    """Name of the peering object; default: "default"."""

    stealth: bool = setting(False, BOOLEAN)
    """Whether keep-alives are not logged; default: False, they are logged as debug messages."""

    priority: int = setting(0, INTEGER)
    """Priority of this operator: others pause while one with a higher one runs; default: 0."""

    lifetime: float = setting(60, TIMEOUT)
    """Seconds for which others consider the operator alive after a keep-alive; default: 60. Keep-alives are sent 5 to
    10 seconds before that time is over, or halfway through it if it is very short."""

    mandatory: bool = setting(False, BOOLEAN)
    """Whether the operator pauses while there is no peering object; default: False: without one, it runs standalone."""

    standalone: bool = setting(False, BOOLEAN)
    """Whether peering is off; default: False."""

    tie_break: bool = setting(False, BOOLEAN)
    """Whether, of several operators with the same priority, the one whose identity sorts first goes on; default: False,
    all of them pause, as Kopf's do. Kopf's operators ignore it."""


@section
class LeadershipSettings(Section):
    """Settings of leader election by a Lease: see docs/settings.md. All times are in seconds."""

    _path: ClassVar[str] = "settings.leadership"

    enabled: bool = setting(False, BOOLEAN)
    """Whether only the leader of several replicas handles objects, while the others stand by; default: False."""

    name: str = setting("trioperator", OBJECT_NAME)
    """Name of the Lease; default: "trioperator". Different operators in one namespace need different names."""

    namespace: str | None = setting(None, NAMESPACE.or_none())
    """Namespace of the Lease; default: None: the pod's, or that in the kubeconfig's context, else "default"."""

    identity: str | None = setting(None, TEXT.or_none())
    """Name of this replica, unique among all; default: None: ``$POD_ID``, or the user, the host, the time and a random
    suffix."""

    lease_duration: float = setting(15.0, TIMEOUT)
    """Seconds after the last renewal seen until a replica takes over the leadership; default: 15. Rounded up to
    whole seconds. It must be longer than ``renew_deadline``."""

    renew_deadline: float = setting(10.0, TIMEOUT)
    """Seconds after its last renewal until a leader that cannot renew the Lease is paused; default: 10. It must be
    longer than ``retry_period``."""

    retry_period: float = setting(2.0, TIMEOUT)
    """Seconds between renewals, and at most between attempts to acquire the Lease; default: 2."""

    shards: int = setting(1, COUNT)
    """Number of shards that the objects are divided into; default: 1. If there are several, all replicas handle
    objects, each those in its share of the shards, whatever ``enabled`` is."""

    @property
    def expects_replicas(self) -> bool:
        """Whether, by its settings, the operator is one of several replicas."""
        return self.enabled or self.shards > 1

    def check(self) -> None:
        """Raise ConfigError if the times contradict each other."""
        if not self.lease_duration > self.renew_deadline > self.retry_period:
            raise ConfigError(
                "settings.leadership: lease_duration must be longer than renew_deadline, and that longer than"
                f" retry_period, but they are {self.lease_duration:g}, {self.renew_deadline:g} and"
                f" {self.retry_period:g} seconds."
            )
