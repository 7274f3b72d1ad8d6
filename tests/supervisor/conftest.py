"""A client of the cluster in memory, with faults that tests plan."""

from __future__ import annotations

from tests.client.conftest import client, plan

__all__ = ["client", "plan"]
