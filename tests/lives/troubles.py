"""The troubles that lives get into, as steps and ambushes: each method of :class:`Troubles` draws one."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

from tests.lives.parts import PARTS
from tests.lives.plans import TROUBLE, Ambush, Step
from tests.lives.world import CLUSTERS_PEERING, NAMESPACES_PEERING

_CODES = [409, 409, 429, 500, 503]
_VERBS = [["create"], ["patch"], ["delete"], ["delete"], ["patch", "delete"], ["create", "patch", "delete"]]
_RESOURCES = ["", "", "configmaps", "widgets", "gizmos", "apps", "secrets"]
#: A fault by its name, and the code, seconds or lines that it is about.
_Fault: TypeAlias = tuple[str, float]
_LOST: list[_Fault] = [("lose_answer", 0)]
_LATE: list[_Fault] = [("after", 0.05), ("after", 0.3), ("before", 0.05), ("before", 2)]
_BROKEN: list[_Fault] = [("refuse", 0), ("reset", 0), ("half_body", 0)]
_REJECTED: list[_Fault] = [("status", code) for code in _CODES]
_STREAMS = ["close", "break_off", "half_line", "error_event", "lag", "duplicate", "garbage", "silence", "status"]


class Troubles:
    """The steps of a life's troubles, for its operators and its parts."""

    def __init__(self, rng: random.Random, operators: list[str], parts: list[str]) -> None:
        self.steps: list[Step] = []
        self._rng = rng
        self._operators = operators
        self._parts = parts
        self._plurals = [PARTS[name].plural for name in parts]

    def draw(self, trouble: str) -> None:
        """Draw a trouble once."""
        getattr(self, f"_{trouble.replace(' ', '_')}")()

    def _add(self, deed: str, *args: Any, at: float | None = None) -> None:
        when = self._rng.uniform(0, TROUBLE - 10) if at is None else at
        self.steps.append(Step(at=round(max(0.0, when), 2), deed=deed, args=args))

    def _who(self) -> str:
        return self._rng.choice(self._operators)

    def _fault(self, fault: _Fault, selection: dict[str, Any], **how: Any) -> None:
        """Add a fault of a script's client, if there is one, or of an operator."""
        rng = self._rng
        seconds, times, at = rng.choice([1, 5, 30]), rng.choice([1, 1, 2, 5, None]), how.pop("at", None)
        who = self._who()
        if how.pop("is_of_client", False):
            who, seconds, times, at = "client", 60, rng.choice([1, 2, 3]), rng.choice([0, 5])
            selection = {key: value for key, value in selection.items() if key != "resource"}
        self._add("fault", who, *fault, how.get("seconds", seconds), how.get("times", times), selection, at=at)

    def _is_of_client(self) -> bool:
        return "scripts" in self._parts and self._rng.random() < 0.8

    # The network.

    def _writes(self) -> None:
        rng, is_of_client = self._rng, self._is_of_client()
        fault = rng.choice(_LOST * (15 if is_of_client else 2) + _LATE + _BROKEN + _REJECTED)
        selection: dict[str, Any] = {"verb": rng.choice(_VERBS)}
        if resource := rng.choice(_RESOURCES):
            selection["resource"] = resource
        self._fault(fault, selection, is_of_client=is_of_client)

    def _protection(self) -> None:
        """Let nobody delete anything for a while, as a webhook that protects objects."""
        self._fault(("status", 409), {"verb": ["delete"]}, seconds=30)

    def _reads(self) -> None:
        fault = self._rng.choice([*_LOST, ("status", 500), ("status", 410), ("status", 429), ("after", 3)])
        self._fault(fault, {"verb": ["list", "get"]}, is_of_client=self._is_of_client())

    def _watches(self) -> None:
        rng = self._rng
        if self._is_of_client():
            kind = rng.choice([*_STREAMS, *["error_event"] * 5])
            more = {"times": None} if kind == "error_event" else {}
            self._fault((kind, self._number(kind)), {"watch": True}, is_of_client=True, **more)
        elif (kind := rng.choice(_STREAMS)) == "lag":
            self._lag(self._who(), rng.choice(self._plurals), rng.choice([0.2, 2, 8]))
        else:
            self._fault((kind, self._number(kind)), {"watch": True})

    def _bursts(self) -> None:
        """Let the events of all watches arrive at the same moment: the tasks that they wake run in any order."""
        self._add("hold_back", self._rng.choice([0.2, 2, 4]))

    def _number(self, kind: str) -> float:
        return 410 if kind == "status" else 0.05 if kind == "lag" else self._rng.choice([0, 0, 1, 2])

    def _lag(self, who: str, resource: str, seconds: float) -> None:
        self._add("fault", who, "lag", seconds, TROUBLE, None, {"watch": True, "resource": resource}, at=0)

    def _late_start(self) -> None:
        rng = self._rng
        fault = rng.choice([("before", 4), ("after", 2), ("after", 4), ("before", 10)])
        selection = {"verb": ["list"], "resource": rng.choice(self._plurals)}
        self._add("fault", self._who(), *fault, TROUBLE, rng.choice([1, None]), selection, at=0)

    def _slow(self) -> None:
        rng = self._rng
        resource = rng.choice(["configmaps", "configmaps", ""])
        self._add("slow", resource, rng.choice([6, 11]) if resource else rng.choice([3, 6]), rng.choice([20, 60]))

    # Objects.

    def _holds(self) -> None:
        """Pause an object for a while, and poke it, in either order."""
        rng = self._rng
        part = PARTS[rng.choice(self._parts)]
        seconds, at = rng.choice([0.05, 2, 15, 40]), rng.uniform(0, TROUBLE - 20)
        self._add("hold", part.plural, part.first, seconds, rng.random() < 0.4, at=at)
        if rng.random() < 0.6:
            self._add("poke", part.plural, part.first, str(len(self.steps)), at=at + rng.choice([-1, 0.01, 3, 20]))

    def _pokes(self) -> None:
        """Pause an object for a while, and poke it: likewise at checkpoints."""
        self._holds()

    def _fillings(self) -> None:
        """Leave no room for records in the annotations of an object for a while."""
        part = PARTS[self._rng.choice(self._parts)]
        self._add("fill", part.plural, part.first, self._rng.choice([1, 20, 150]))

    def _strangers(self) -> None:
        """Let others keep an object from going for a while, by a finalizer of theirs, and delete it sometimes."""
        rng, part = self._rng, PARTS[self._rng.choice(self._parts)]
        seconds, at = rng.choice([0.05, 2, 15, 40]), rng.uniform(0, TROUBLE - 20)
        self._add(f"{part.plural}.hinder", part.first, seconds, at=at)
        if rng.random() < 0.6:
            self._add(f"{part.plural}.delete", part.first, at=at + rng.choice([0.01, 0.01, 1, 3]))

    def _clinging(self) -> None:
        """Let others keep children from going for a while, and owners be replaced meanwhile, sometimes."""
        rng, part, at = self._rng, PARTS["children"], self._rng.uniform(5, TROUBLE - 20)
        for number in range(3):
            self._add("cling", rng.choice([0.1, 3, 20]), at=at + number * rng.choice([0, 1]))
        deed = rng.choice(["delete", "succeed", "succeed"])
        if rng.random() < 0.7:
            self._add(f"{part.plural}.{deed}", part.first, at=at + rng.choice([0.01, 1, 4]))

    def _successors(self) -> None:
        """Let an object be replaced by another one of the same name, perhaps several times in a row."""
        rng, part = self._rng, PARTS[self._rng.choice(self._parts)]
        at, pause = rng.uniform(0, TROUBLE - 20), rng.choice([0, 0.01, 0.1, 2])
        for number in range(rng.choice([1, 1, 3])):
            self._add(f"{part.plural}.succeed", part.first, at=at + number * pause)

    def _fights(self) -> None:
        """Undo what an operator writes, again and again."""
        rng = self._rng
        fighting = [PARTS[name] for name in self._parts if name in {"children", "background", "changes"}]
        if fighting:
            part = rng.choice(fighting)
            self._add(f"{part.plural}.fight", part.first, rng.choice([0.05, 0.3, 2]), rng.choice([5, 20, 40]))

    def _releases(self) -> None:
        """Release objects as ``trioperator release`` does, though the operator runs."""
        rng = self._rng
        self._add("release_objects", PARTS[rng.choice(self._parts)].plural, rng.random() < 0.5)

    # Operators.

    def _restart(self) -> None:
        who, at = self._who(), self._rng.uniform(0, TROUBLE - 15)
        self._add(self._rng.choice(["stop", "crash"]), who, at=at)
        self._add("start", who, at=at + self._rng.choice([0.1, 3, 10]))

    def _stops(self) -> None:
        """Change an object, stop the operator soon after that, and change the object, or change it back, meanwhile."""
        rng, at = self._rng, self._rng.uniform(5, TROUBLE - 25)
        part = PARTS["changes"]
        self._add(f"{part.plural}.edit", part.first, {"serial": f"stopped {len(self.steps)}"}, at=at)
        self._add("stop", "a", at=at + rng.choice([0.1, 0.5, 2]))
        meanwhile = at + rng.choice([0.5, 8, 8])
        if rng.random() < 0.5:
            self._add(f"{part.plural}.take_back", part.first, at=meanwhile)
        else:
            self._add(f"{part.plural}.edit", part.first, {"serial": f"again {len(self.steps)}"}, at=meanwhile)
        self._add("start", "a", at=at + 12)

    def _upgrades(self) -> None:
        who, at = self._who(), self._rng.uniform(0, TROUBLE - 15)
        self._add("stop", who, at=at)
        self._add("start", who, self._rng.choice(["full", "plain", "event", "reconcile"]), at=at + 10)

    def _rollout(self) -> None:
        """Let all operators be replaced by those of another version, one after another."""
        rng = self._rng
        at, gap, variant = rng.uniform(5, 25), rng.choice([0.5, 4, 12]), rng.choice(["full", "full", "plain"])
        for number, who in enumerate(self._operators):
            self._add(rng.choice(["stop", "stop", "crash"]), who, at=at + number * gap)
            self._add("start", who, variant, at=at + number * gap + rng.choice([0.1, 3]))

    def _rollbacks(self) -> None:
        """Replace all operators by a release with other handlers, and that by the first one again.

        Meanwhile, an object is changed, and perhaps changed back.
        """
        rng, at = self._rng, self._rng.uniform(5, 25)
        part = PARTS["changes"]
        self._add(f"{part.plural}.edit", part.first, {"serial": f"before {len(self.steps)}"}, at=at)
        ends = at + rng.choice([0.1, 2, 5]), at + 20
        for end, variant in zip(ends, ("other", "plain"), strict=True):
            for who in self._operators:
                self._add(rng.choice(["stop", "stop", "crash"]), who, at=end)
                self._add("start", who, variant, at=end + 3)
        if rng.random() < 0.8:
            self._add(f"{part.plural}.take_back", part.first, at=at + rng.choice([12, 12, 21]))
        if rng.random() < 0.8:
            edit = {"serial": f"after {len(self.steps)}"}
            self._add(f"{part.plural}.edit", part.first, edit, at=at + rng.choice([14, 21, 30]))

    def _reversals(self) -> None:
        """Change an object, and change it back a while after that."""
        rng, at = self._rng, self._rng.uniform(5, TROUBLE - 20)
        part = PARTS["changes"]
        for number in range(rng.choice([1, 3])):
            edit = {"serial": f"reversed {len(self.steps)}"}
            self._add(f"{part.plural}.edit", part.first, edit, at=at + 10 * number)
            self._add(f"{part.plural}.take_back", part.first, at=at + 10 * number + rng.choice([0.05, 0.5, 2, 5]))

    def _retire(self) -> None:
        """Let the first operator end for good, and the second one see late what the first one has done."""
        at = self._rng.uniform(20, 50)
        self._add("retire", "a", at=at)
        if "changes" in self._parts:
            self._add("widgets.create", "late", at=at - self._rng.choice([0.5, 1, 3]))
            if self._rng.random() < 0.7:
                self._lag("b", "widgets", self._rng.choice([2, 8]))

    def _freeze(self) -> None:
        self._add("freeze", self._rng.choice([0.5, 4, 20]))

    # Coordination.

    def _lease(self) -> None:
        rng = self._rng
        self._add("steal", rng.choice([20, 40]), at=rng.choice([rng.uniform(0.2, 6), rng.uniform(0, 40)]))

    def _slow_leases(self) -> None:
        faults: list[_Fault] = [("stall", 0), ("stall", 0), ("status", 500), *_LOST, ("before", 3), ("after", 3)]
        seconds = self._rng.choice([10, 25])
        self._add("fault", self._who(), *self._rng.choice(faults), seconds, None, {"resource": "leases"})

    def _pauses(self) -> None:
        rng = self._rng
        self._add("boss", rng.choice([20, 40]), at=rng.choice([rng.uniform(0.2, 5), rng.uniform(3, 30)]))

    def _slow_peering(self) -> None:
        plural = (NAMESPACES_PEERING if "places" in self._parts else CLUSTERS_PEERING)[1]
        selection = {"resource": plural, "verb": "patch"}
        self._add("fault", self._who(), "stall", 0, 40, 1, selection, at=self._rng.choice([15, 30]))

    # The cluster.

    def _thieves(self) -> None:
        """Draw nothing: thieves lie in ambush."""

    def _clock(self) -> None:
        self._add("set_clock", self._rng.choice([-3600, -3600, -30, 330, 400, 500, 3600]), at=self._rng.uniform(1, 50))

    def _rights(self) -> None:
        namespace = self._rng.choice(["team-a", "team-b"])
        self._add("forbid", namespace, self._rng.choice([5, 40, 1000]), at=self._rng.choice([0, 10]))
        if self._rng.random() < 0.3:
            self._add("delete_namespace", "team-b", at=40)

    def _denials(self) -> None:
        """Take the rights to write away for a while, as those who edit roles do."""
        rng = self._rng
        selection: dict[str, Any] = {"verb": rng.choice(_VERBS)}
        if resource := rng.choice(_RESOURCES):
            selection["resource"] = resource
        if rng.random() < 0.3:  # roles have rules of their own for it
            selection = {"verb": ["patch"], "subresource": "status"}
        self._add("fault", self._who(), "status", 403, rng.choice([2, 20, 60]), None, selection)

    def _logins(self) -> None:
        """Let the server reject the credentials for a while, of all requests or of some."""
        rng = self._rng
        selection: dict[str, Any] = rng.choice([{}, {"watch": True}, {"verb": rng.choice(_VERBS)}, {"verb": ["list"]}])
        self._add("fault", self._who(), "status", 401, rng.choice([0.5, 5, 30]), rng.choice([None, 1, 3]), selection)

    def _versions(self) -> None:
        self._add("add_version", PARTS[self._rng.choice(self._parts)].kind, self._rng.choice([1, 2, 3]))

    def _towns(self) -> None:
        """Let a namespace be gone for a while, with all that is in it."""
        self._add("move_town", self._rng.choice(["team-a", "team-b", "tenant-x"]), self._rng.choice([0, 0.1, 2, 15]))

    def _kinds(self) -> None:
        """Let a kind be gone for a while, as when its definition is uninstalled, and installed again."""
        part = PARTS[self._rng.choice(self._parts)]
        self._add("drop_kind", part.plural, self._rng.choice([0, 0.1, 2, 15]))

    def _restore(self) -> None:
        at = self._rng.uniform(5, 20)
        self._add("back_up", at=at)
        self._add("touch", self._rng.choice([20, 200]), at=at + 5)
        self._add("restore", at=at + 20)


def draw_ambushes(rng: random.Random, troubles: frozenset[str], parts: list[str]) -> list[Ambush]:
    """Return deeds at checkpoints: each at a request of the first operator, wherever that may be."""
    choices: list[tuple[str, str, str, tuple[Any, ...]]] = []
    if "thieves" in troubles:
        choices += [("create,patch", "configmaps", "delete_this", ())] * 3
        choices.append(("create,patch,get", "", "delete_this", ()))
        choices += [("", "", f"{PARTS[name].plural}.delete", (PARTS[name].first,)) for name in parts]
    if "lease" in troubles:
        choices.append(("", "", "steal", (30,)))
    if "pauses" in troubles:
        choices.append(("", "", "boss", (30,)))
    first = PARTS[parts[0]]
    if "pokes" in troubles:
        choices += [
            ("", "", "hold", (first.plural, first.first, 5, False)),
            ("", "", "poke", (first.plural, first.first, "now")),
        ]
    if "strangers" in troubles:
        choices.append(("", "", f"{first.plural}.hinder", (first.first, 10)))
        choices.append(("", "", f"{first.plural}.delete", (first.first,)))
    if "successors" in troubles:
        choices.append(("", "", f"{first.plural}.succeed", (first.first,)))
    if "towns" in troubles:
        choices.append(("", "", "move_town", ("team-a", 1)))
    if "versions" in troubles:
        choices.append(("", "", "add_version", (PARTS[parts[0]].kind, 2)))
    if "restart" in troubles:
        choices.append(("", "", "crash", ("a",)))
    made = []
    often = [0, 0, 1, 2] if troubles & {"lease", "pauses"} else [1, 2, 3]
    for _ in range(rng.choice(often) if choices else 0):
        verb, resource, deed, args = rng.choice(choices)
        answered = deed == "delete_this" or rng.random() < 0.5
        nth = rng.choice([1, 1, 2, 3, rng.randrange(1, 40)]) if verb else rng.randrange(3, 40)
        pause = rng.choice([0, 0.05, 0.05, 2, 6])
        stopping = not verb and bool(troubles & {"restart", "retire", "upgrades"}) and rng.random() < 0.4
        if stopping:
            nth, pause = rng.randrange(1, 12), rng.choice([0, 0.05, 2])
        made.append(
            Ambush(
                verb=verb,
                resource=resource,
                nth=nth,
                answered=answered,
                pause=pause,
                deed=deed,
                args=args,
                stopping=stopping,
            )
        )
    return made
