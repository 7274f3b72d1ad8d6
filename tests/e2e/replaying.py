"""Sequences of states on a real control plane, as exploring plays them on the embedded one."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from tests.controlplane import ControlPlane
from trioperator.apiserver import Cluster
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.snapshots import Mask, Snapshot, take_snapshot
from trioperator.testing.exploring.subjects import State, Subject

# Seconds without a change after which a state counts as reached, and those that it may take.
_CALM: Final = 4.0
_PATIENCE: Final = 30.0


class RealStage:
    """A namespace of a real cluster, in which the object of a subject goes from state to state."""

    def __init__(self, plane: ControlPlane, subject: Subject) -> None:
        self._plane, self._subject = plane, subject
        self.namespace = f"replay-{uuid.uuid4().hex[:8]}"
        plane.kubectl("create", "namespace", self.namespace)
        names = plane.kubectl("api-resources", "--namespaced", "--verbs=list,create", "-o", "name").split()
        self._kinds = ",".join(name for name in names if name.partition(".")[0] not in ("events", "leases"))
        self.before = {obj["metadata"]["uid"] for obj in self.objects()}

    def play(self, states: Sequence[State]) -> Snapshot:
        """Put the object into the states, one after another, and return what there is at the end."""
        for state in states:
            self._put(state)
            self._settle()
        return take_snapshot(cast(Cluster, self), subject=self._subject.kind, before=self.before)

    def find(self, plural: str) -> Any:
        """Return the object of a kind that has the name of the subject; None if there is none."""
        text = self._kubectl("get", plural, self._subject.name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text else None

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the namespace, which is named as in plays."""
        text = self._kubectl("get", self._kinds, "-o", "json", "--show-managed-fields")
        return cast(list[dict[str, Any]], json.loads(text.replace(self.namespace, "default"))["items"])

    def _put(self, state: State) -> None:
        made = self._subject.make_object(state)
        current = self._kubectl("get", self._subject.resource, "-o", "json")
        for obj in json.loads(current)["items"]:
            made |= {key: obj[key] for key in ("metadata", "status") if key in obj}
        verb = "replace" if "uid" in made["metadata"] else "create"
        self._kubectl(verb, "-f", "-", input=json.dumps(made))

    def _settle(self) -> None:
        """Wait until nothing has changed for a while, or long enough."""
        end = time.monotonic() + _PATIENCE
        seen, since = "", time.monotonic()
        while time.monotonic() < min(end, since + _CALM):
            found = self._kubectl("get", self._kinds, "-o", "jsonpath={.items[*].metadata.resourceVersion}")
            if found != seen:
                seen, since = found, time.monotonic()

    def _kubectl(self, *args: str, input: str | None = None) -> str:
        return self._plane.kubectl("-n", self.namespace, *args, input=input)


def mask_results(player: Player) -> Collection[Mask]:
    """Return masks for the results of handlers in the status, which plays leave out."""
    ids = {handler.id.partition("/")[0] for handler in player.app.load()}
    return {(player.subject.kind, ("status", each)) for each in ids}
