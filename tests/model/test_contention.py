"""The detector of contention: who is blamed for what, how often fields are written, and when that ends."""

import itertools
import math
import os
import random
from collections.abc import Collection
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.contention import UNKNOWN, Contention, FieldSet, Limits, Verdict, are_related, list_leaves
from trioperator._model.field_managers import Attribution, find_changed_fields
from trioperator._model.fields import resolve

LABEL = ("metadata", "labels", "team")
SIZE = ("spec", "size")
OWN = frozenset({"trioperator", "database-operator"})


def fight(contention: Contention, now: float, *, manager: str = "stomper", path: tuple[str, ...] = LABEL) -> Any:
    """Write a field, and let somebody else undo that; return the verdicts."""
    verdicts = contention.wrote([path], now, changed=True)
    contention.changed([(path, manager)], now)
    return verdicts


def contended(now: float = 0.0, **limits: Any) -> Contention:
    contention = Contention(Limits(**limits), random=lambda: 0.5)
    for second in range(4):
        fight(contention, now + second / 10)
    assert contention.is_contended(LABEL)
    return contention


def test_a_field_that_flips_is_contended_by_the_other_manager() -> None:
    contention = Contention(Limits())
    verdicts = [verdict for second in range(4) for verdict in fight(contention, second)]
    assert verdicts == [Verdict(path=LABEL, reason="ChangedByOthers", manager="stomper")]
    assert "metadata.labels.team is changed by stomper repeatedly" in str(verdicts[0])


def test_flips_that_are_far_apart_are_no_contention() -> None:
    contention = Contention(Limits())
    assert not any(fight(contention, 61.0 * hour) for hour in range(50))


def test_a_field_that_nobody_else_changes_is_not_contended() -> None:
    contention = Contention(Limits())
    for second in range(100):
        assert not contention.wrote([LABEL], second, changed=True)
        contention.changed([(SIZE, "kubectl")], second)


def test_other_fields_of_a_contended_object_are_written_at_once() -> None:
    contention = contended()
    assert contention.hold(LABEL, 1)
    assert not contention.hold(SIZE, 1)


def test_a_contended_field_is_written_once_a_minute() -> None:
    contention = contended()
    writes = []
    for tick in range(6000):
        now = 1 + tick / 10
        if not contention.hold(LABEL, now):
            writes.append(now)
            fight(contention, now)
    assert 8 <= len(writes) <= 10
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(writes))


def test_it_ends_a_minute_after_a_write_that_stays() -> None:
    contention = contended()
    assert contention.hold(LABEL, 1)
    due = contention.due
    assert not contention.calm_down(due)
    contention.wrote([LABEL], due, changed=True)
    assert contention.due == due + 60
    assert not contention.calm_down(due + 59)
    [ended] = contention.calm_down(due + 60)
    assert (ended.ended, ended.path) == (True, LABEL)
    assert contention.is_over
    assert contention.due == math.inf


def test_it_ends_though_something_else_is_wanted_all_the_time() -> None:
    contention = contended()
    contention.wrote([LABEL], 100, changed=True)  # the other one has left
    ended = []
    for second in range(101, 200):
        ended += contention.calm_down(second)
        assert contention.hold(LABEL, second) is not bool(ended)  # as a timer does
        assert contention.due >= second or ended
    assert [verdict.path for verdict in ended] == [LABEL]


def test_too_many_writes_do_not_end_while_as_many_are_wanted() -> None:
    contention = Contention(Limits(writes=10), random=lambda: 0.5)
    for number in range(10):
        contention.wrote([LABEL], number / 10, changed=True)
    for second in range(2, 200):
        assert not contention.calm_down(second)
        if not contention.hold(LABEL, second):
            contention.wrote([LABEL], second, changed=True)


def test_it_ends_where_nothing_is_wanted_any_more() -> None:
    contention = contended()
    assert contention.calm_down(contention.due)
    assert not contention.hold(LABEL, 200)


def test_it_begins_again_from_zero() -> None:
    contention = contended()
    contention.calm_down(1000)
    assert not any(fight(contention, 1000 + second) for second in range(3))
    assert fight(contention, 1003)


def test_writes_that_change_nothing_are_contention_with_nobody() -> None:
    contention = Contention(Limits())
    verdicts = [verdict for second in range(30) for verdict in contention.wrote([SIZE], second, changed=False)]
    assert verdicts == [Verdict(path=SIZE, reason="NoEffect")]


def test_a_few_writes_that_change_nothing_are_borne() -> None:
    contention = Contention(Limits())
    assert not any(contention.wrote([SIZE], 10.0 * second, changed=False) for second in range(100))


def test_too_many_writes_are_contention_with_who_changes_the_object_most() -> None:
    contention = Contention(Limits())
    verdicts = []
    for number in range(200):
        verdicts += contention.wrote([("status", "count")], number / 10, changed=True)
        contention.changed([(SIZE, "autoscaler")], number / 10)
    assert verdicts == [Verdict(path=("status", "count"), reason="TooManyWrites", manager="autoscaler")]


def test_timers_may_write_as_often_as_they_like() -> None:
    contention = Contention(Limits())
    assert not any(contention.wrote([SIZE], second / 10, changed=True, counts=False) for second in range(2000))


def test_a_change_of_the_whole_concerns_its_parts() -> None:
    contention = Contention(Limits())
    verdicts = []
    for second in range(5):
        verdicts += contention.wrote([LABEL], second, changed=True)
        contention.changed([(LABEL[:2], UNKNOWN)], second)
    assert [(verdict.path, verdict.manager) for verdict in verdicts] == [(LABEL, UNKNOWN)]
    assert "whom the API server does not name" in str(verdicts[0])


def test_the_fields_of_an_object_are_limited() -> None:
    contention = Contention(Limits())
    for number in range(1000):
        contention.wrote([("status", str(number))], 0, changed=True)
    contention.calm_down(61)
    assert contention.is_over


SOME_PATHS = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)


@given(st.lists(SOME_PATHS), SOME_PATHS)
def test_a_set_of_fields_tells_whether_any_is_related(fields: list[tuple[str, ...]], path: tuple[str, ...]) -> None:
    assert FieldSet(fields).is_related(path) == any(are_related(field, path) for field in fields)


def test_what_changes_known_fields_comes_first_and_there_is_a_limit() -> None:
    contention = Contention(Limits())
    contention.wrote([("status", "size")], 0, changed=True)
    others = [("spec", f"k{number}") for number in range(100_000)]
    chosen = list(contention.choose([*others, ("status", "size")]))
    assert chosen[0] == ("status", "size")
    assert set(chosen[1:]) <= set(others)
    assert len(chosen) <= 201
    parts = [("status", "size", f"k{number}") for number in range(100_000)]
    assert len(list(contention.choose([*parts, *others]))) <= 400


def test_leaves_of_a_patch_are_its_fields() -> None:
    patch = {"metadata": {"labels": {"team": "a", "old": None}}, "spec": {}, "status": {"list": [{"a": 1}]}}
    assert list_leaves(patch) == {
        LABEL: "a",
        ("metadata", "labels", "old"): None,
        ("spec",): {},
        ("status", "list"): [{"a": 1}],
    }


Change: TypeAlias = tuple[tuple[str, ...], str]  # of a field, and by whom


class Server:
    """An object with managers of its fields, as the API server records them: after an update, a field has one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.fields: dict[tuple[str, ...], tuple[Any, str]] = {}
        self.times: dict[str, int] = {}
        self.truth: list[Change] = []  # of values

    def write(self, manager: str, values: dict[tuple[str, ...], Any]) -> bool:
        changes = {path: value for path, value in values.items() if self.value(path) != value}
        for path, value in changes.items():
            self.truth.append((path, manager))
            if value is None:
                del self.fields[path]
            else:
                self.fields[path] = value, manager
                self.times[manager] = int(self.time)
        return bool(changes)

    def value(self, path: tuple[str, ...]) -> Any:
        return self.fields[path][0] if path in self.fields else None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {}}
        entries: dict[str, dict[str, Any]] = {}
        for path, (value, manager) in self.fields.items():
            made = entries.setdefault(manager, {"manager": manager, "operation": "Update", "fieldsV1": {}})
            made["time"] = f"2026-01-01T00:{self.times[manager] // 60:02}:{self.times[manager] % 60:02}Z"
            node, tree = body, made["fieldsV1"]
            for key in path[:-1]:
                node, tree = node.setdefault(key, {}), tree.setdefault(f"f:{key}", {})
            node[path[-1]] = value
            tree[f"f:{path[-1]}"] = {}
        body["metadata"]["managedFields"] = list(entries.values())
        return body


PATHS = (LABEL, SIZE, ("metadata", "annotations", "a/b"), ("status", "phase"), ("spec", "replicas"))
OTHERS = ("stomper", "kubectl-edit", "hpa")


def find_blamed(
    known: dict[str, Any],
    body: dict[str, Any],
    since: list[Change],
    *,
    answered: Collection[tuple[str, ...]],
    history: str,
) -> list[Change]:
    """Return which changes between two states are put down to others, which must have made them.

    *since* are all changes of values between them, and *answered* are the fields of ours by a response.
    """
    attribution, blamed = Attribution(known, body, own=OWN), list[Change]()
    for path in find_changed_fields(known, body):
        if path in answered:
            continue
        manager, is_there = attribution.find(path), resolve(body, path) is not None
        by = [writer for field, writer in since if field == path]
        assert by, f"{history}: {path} is no change"
        if manager is not None and manager not in OWN:
            blamed.append((path, manager))
            # The last writer of a value is on record.
            assert manager in ([by[-1]] if is_there else {writer for _, writer in since}), f"{history}: {path}"
        elif manager in OWN and is_there:
            assert OWN & set(by), f"{history}: {path} of others is put down to us"
    return blamed


def play(seed: int) -> int:
    """Let several writers interleave at random; return how many changes were put down to anybody.

    Watch events come late and are left out, responses are lost, and we write under several names.
    """
    server = Server(seed)
    choose = server.random
    contention = Contention(Limits(), random=choose.random)
    known, position, attributed = server.body(), 0, 0
    for _ in range(choose.randrange(5, 60)):
        server.time += choose.choice([0.01, 0.3, 1.0, 7.0])
        ours = choose.random() < 0.4
        values = {path: choose.choice([1, 2, None]) for path in choose.sample(PATHS, choose.randint(1, 2))}
        changed = server.write(choose.choice([*OWN]) if ours else choose.choice(OTHERS), values)
        answered = ours and choose.random() < 0.8  # else the response is lost, and the watch brings it
        if not answered and choose.random() < 0.4:
            continue  # the next watch event brings it
        body = server.body()
        since, position = server.truth[position:], len(server.truth)
        blamed = find_blamed(known, body, since, answered=values if answered else (), history=f"seed {seed}")
        attributed += len(blamed)
        contention.changed(blamed, server.time)
        if answered:
            for verdict in contention.wrote(values, server.time, changed=changed):
                assert verdict.manager not in OWN, f"seed {seed}: we are blamed"
        known = body
    return attributed


@pytest.mark.parametrize("part", range(4))
def test_nobody_is_blamed_for_what_others_have_done(part: int) -> None:
    count = int(os.environ.get("TRIOPERATOR_SEEDS", "400")) // 4
    assert sum(play(seed) for seed in range(part * count, (part + 1) * count)) > count
