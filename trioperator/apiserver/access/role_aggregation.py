"""Aggregation of ClusterRoles, as a follow-up of writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..model.selectors import LabelSelector, selector_of
from ..store.state import State
from ..store.storage import Change, Table

_CLUSTER_ROLES: Final = ("rbac.authorization.k8s.io", "clusterroles")


class RoleAggregator:
    """Controller that fills the rules of ClusterRoles with an ``aggregationRule``."""

    def __init__(self, state: State, *, schedule: Callable[[Callable[[], None]], None]) -> None:
        self._state = state
        self._table = state.store.table(_CLUSTER_ROLES)
        self._schedule = schedule
        self._is_due = False
        state.store.on_change.append(self._observe)

    def _observe(self, table: Table, change: Change) -> None:
        if table is self._table and not self._is_due:
            self._is_due = True
            self._schedule(self.aggregate)

    def aggregate(self) -> None:
        """Update all aggregated roles."""
        self._is_due = False
        for key in tuple(self._table.keys()):
            stored = self._table.objects[key]
            selectors = (stored.obj.get("aggregationRule") or {}).get("clusterRoleSelectors")
            if not selectors:
                continue
            rules = self._gather(key, [selector_of(selector or {}) for selector in selectors]) or None
            if rules != stored.obj.get("rules"):
                self._state.store.put(self._table, key, {**stored.obj, "rules": rules})

    def _gather(self, own: str, selectors: list[LabelSelector]) -> list[Mapping[str, Any]]:
        rules: list[Mapping[str, Any]] = []
        for selector in selectors:
            for key in self._table.keys():  # noqa: SIM118 -- a table is not a dict
                stored = self._table.objects[key]
                if key != own and selector.matches(stored.obj):
                    rules.extend(rule for rule in stored.obj.get("rules") or () if rule not in rules)
        return rules
