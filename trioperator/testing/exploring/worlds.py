"""Controllers for kinds that no embedded controller runs: autoscalers, and statuses by rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError, NotFoundError

_AUTOSCALERS = "horizontalpodautoscalers.autoscaling"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusRule:
    """The condition that all objects of a kind get, once all else is at rest: ``certificates=Ready``."""

    kind: str
    condition: str

    @classmethod
    def parse(cls, text: str) -> StatusRule:
        """Return the rule of a text such as ``certificates.cert-manager.io=Ready``. Raises ConfigError."""
        kind, separator, condition = text.partition("=")
        if not (kind and separator and condition):
            raise ConfigError(f"A status by rule is KIND=CONDITION, such as certificates=Ready, not {text!r}.")
        return cls(kind=kind, condition=condition)


async def scale_targets(cluster: Cluster) -> None:
    """Bring the replicas of all targets of autoscalers to their minimum, as where there is no load."""
    for scaler in await cluster.list(_AUTOSCALERS):
        spec, namespace = scaler["spec"], scaler["metadata"]["namespace"]
        target = spec["scaleTargetRef"]
        try:
            obj = await cluster.get(target["kind"], target["name"], namespace)
        except (ConfigError, NotFoundError):
            continue
        replicas = obj.get("spec", {}).get("replicas", 1)
        wanted = spec.get("minReplicas", 1)
        if replicas and wanted != replicas:
            await cluster.patch(target["kind"], target["name"], {"spec": {"replicas": wanted}}, namespace)


async def set_statuses(cluster: Cluster, rule: StatusRule) -> None:
    """Set the condition of a rule on all objects that have it not, for their newest generation."""
    for obj in await cluster.list(rule.kind):
        meta = obj["metadata"]
        if not _has_condition(obj, rule.condition):
            condition = {
                "type": rule.condition,
                "status": "True",
                "reason": "ByRule",
                "message": "",
                "observedGeneration": meta.get("generation", 1),
                "lastTransitionTime": wall_now().isoformat(timespec="seconds").replace("+00:00", "Z"),
            }
            status = {"conditions": [condition], "observedGeneration": meta.get("generation", 1)}
            await cluster.patch(
                rule.kind, meta["name"], {"status": status}, meta.get("namespace"), subresource="status"
            )


def _has_condition(obj: Mapping[str, Any], name: str) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    generation = obj["metadata"].get("generation", 1)
    return any(each.get("type") == name and each.get("observedGeneration") == generation for each in conditions)
