"""Tests for :mod:`trioperator.testing.exploring.explorer`: findings are confirmed, shrunk, and the same for a seed."""

from __future__ import annotations

import pathlib

import msgspec
import pytest

from tests.testing.exploring.forgetful import FORGETFUL
from tests.testing.exploring.operators import CONTENDED, CRD, GOOD, SHARDED, make_crd, make_player
from trioperator.errors import ConfigError
from trioperator.testing.exploring.explorer import Budget, Explorer, SubjectReport
from trioperator.testing.exploring.oracles import judge_perturbed
from trioperator.testing.exploring.perturbations import PAUSES, Perturbation
from trioperator.testing.exploring.subjects import State


def explore(folder: pathlib.Path, source: str, *, sequences: int = 8, seed: int = 0) -> SubjectReport:
    player = make_player(folder, source)
    return Explorer(player, seed=seed).run(Budget(sequences=sequences, seconds=100))


def test_a_good_operator_has_no_findings(tmp_path: pathlib.Path) -> None:
    report = explore(tmp_path, GOOD)
    assert report.findings == []
    assert report.sequences == 8
    assert report.transitions > report.states > 5
    assert report.stopped is None


def test_a_finding_is_shrunk_to_what_it_needs(tmp_path: pathlib.Path) -> None:
    (finding,) = explore(tmp_path, FORGETFUL).findings
    assert finding.oracle in ("path", "revert")
    *_, one, other = finding.states
    assert len(finding.states) <= 3
    assert list(one["spec"]) == ["greeting"]
    assert other == {"spec": {}}
    assert finding.count > 1


def test_a_seed_has_the_same_report(tmp_path: pathlib.Path) -> None:
    reports = [msgspec.json.encode(explore(tmp_path, FORGETFUL, seed=3), order="sorted") for _ in range(2)]
    assert reports[0] == reports[1]


def test_what_is_never_the_same_is_masked(tmp_path: pathlib.Path) -> None:
    source = """\
import secrets
import trioperator

@trioperator.on.create("webapps")
async def create_fn(client):
    for prefix in ("a", "b"):
        meta = {"name": f"{prefix}-{secrets.token_hex(4)}"}
        data = {"password": secrets.token_hex(8)}
        await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data})
"""
    assert explore(tmp_path, source, sequences=3).findings == []


def test_what_timers_count_is_masked(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.timer("webapps", interval=20)\ndef tick(patch, status):\n'
        "    patch.status['ticks'] = status.get('ticks', 0) + 1\n"
    )
    assert explore(tmp_path, source, sequences=2).findings == []


def test_what_timers_create_by_the_clock_is_masked(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.timer("webapps", cron="*/10 * * * *")\nasync def tick(name, client):\n'
        '    meta = {"name": f"{name}-{trioperator.wall_now():%H%M}"}\n'
        '    await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})\n'
    )
    explorer = Explorer(make_player(tmp_path, source))
    explorer.run(Budget(sequences=2, seconds=100))
    explorer.perturb([[{"spec": {"size": 1}}]], ["crash", "late"], Budget(sequences=1, seconds=100))
    assert explorer.report.findings == []


def test_what_a_timer_creates_once_is_no_difference_between_ways_that_take_more_or_less_time(
    tmp_path: pathlib.Path,
) -> None:
    source = GOOD + (
        '\n@trioperator.timer("webapps", cron=lambda spec, **_: "*/5 * * * *" if spec.get("size") else None)\n'
        "async def tick(client):\n"
        '    await client.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ticked"}})\n'
    )
    report = Explorer(make_player(tmp_path, source)).play([{"spec": {}}, {"spec": {"size": 1}}])
    assert report.findings == []


FORGETS = """\
import trioperator

known = set()

@trioperator.on.event("webapps")
async def event_fn(type, name, spec, client):
    meta, data = {"name": f"{name}-of-event"}, {"size": str(spec.get("size", 1))}
    if type != "DELETED":
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, owner=None)
    elif name in known:
        await client.delete("configmaps", meta["name"])
    known.add(name)
"""


def test_what_needs_a_perturbation_is_shrunk_too_and_says_which(tmp_path: pathlib.Path) -> None:
    explorer = Explorer(make_player(tmp_path, FORGETS))
    states: list[State] = [{"spec": {"size": 3, "greeting": "a"}}, {"spec": {"size": 2, "greeting": "b"}}]
    explorer.perturb([states], ["blind"], Budget(sequences=1, seconds=100))
    (finding,) = explorer.report.findings
    assert (finding.oracle, finding.fault, finding.states) == ("blind", "blind", [{"spec": {}}])
    assert finding.lines[0].startswith("The operator is down from change 2 to change 2")


def test_each_field_is_perturbed_before_other_values_of_it_are(tmp_path: pathlib.Path) -> None:
    drawn = Explorer(make_player(tmp_path, GOOD)).draw_short()
    shapes = [[sorted(state["spec"]) for state in states] for states in drawn]
    pairs = [len(states) > 1 for states in drawn]
    before, after = shapes[: pairs.index(True)], shapes[len(shapes) - pairs[::-1].index(True) :]
    assert len(before) == len({str(shape) for shape in before}) >= 2
    assert after
    assert all(shape in before for shape in after)


def test_orders_that_are_known_end_the_search_for_others(tmp_path: pathlib.Path) -> None:
    explorer = Explorer(make_player(tmp_path, GOOD))
    explorer.perturb([[{"spec": {}}]], ["order"], Budget(sequences=1, seconds=100))
    assert explorer.report.perturbed == 3


PHASES = """\
import trioperator

@trioperator.on.create("webapps")
async def create_fn(name, spec, client, patch):
    patch.status["phase"] = "Created"
    data = {"size": str(spec.get("size", 1))}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

@trioperator.on.update("webapps")
async def update_fn(patch):
    patch.status["phase"] = "Updated"
"""


def test_a_difference_in_all_states_hides_no_other_and_is_shown_once(tmp_path: pathlib.Path) -> None:
    found = explore(tmp_path, PHASES).findings
    assert sorted([line.partition(" ")[0] for line in each.lines] for each in found) == [["ConfigMap"], ["WebApp"]]
    assert sorted(each.ignored for each in found) == [[], ["WebApp status.phase"]]
    assert all(len(finding.states) == 2 for finding in found)


def test_a_difference_that_does_not_matter_is_ignored(tmp_path: pathlib.Path) -> None:
    explorer = Explorer(make_player(tmp_path, PHASES), ignored=["WebApp status", "ConfigMap"])
    assert explorer.run(Budget(sequences=4, seconds=100)).findings == []


def test_a_fault_with_a_known_cause_is_noted_there(tmp_path: pathlib.Path) -> None:
    explorer = Explorer(make_player(tmp_path, PHASES), ignored=["ConfigMap"])
    explorer.run(Budget(sequences=2, seconds=100))
    explorer.perturb([[{"spec": {}}]], ["edit"], Budget(sequences=1, seconds=100))
    (finding,) = explorer.report.findings
    assert finding.oracle == "path"
    assert finding.also == ["edit: At write 1, somebody labels the object"]


def test_a_handler_that_hangs_is_one_finding(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\nimport trio\n\n@trioperator.on.create("webapps")\nasync def hang():\n    await trio.sleep_forever()\n'
    )
    (finding,) = explore(tmp_path, source, sequences=2).findings
    assert (finding.oracle, finding.summary) == ("handlers", "hang does not return.")
    assert finding.also == ["release: Something is left behind after the deletion of the object."]


LOOP = """\
import trioperator

async def count(body, client):
    meta = body["metadata"]
    number = int(meta.get("annotations", {}).get("number", 0)) + 1
    await client.replace({**body, "metadata": {**meta, "annotations": {"number": str(number)}}})

@trioperator.on.event("webapps")
async def one_fn(type, body, client):
    if type != "DELETED":
        await count(body, client)

@trioperator.on.event("webapps")
async def other_fn(type, body, client):
    if type != "DELETED":
        await count(body, client)
"""


def test_an_error_in_a_loop_without_pauses_is_one_finding(tmp_path: pathlib.Path) -> None:
    (finding,) = explore(tmp_path, LOOP, sequences=1).findings
    assert finding.summary in ("one_fn raises ConflictError.", "other_fn raises ConflictError.")
    assert [line.partition(":")[0] for line in finding.also] == ["cost"]


def test_what_an_error_leaves_undone_with_a_fault_is_one_finding(tmp_path: pathlib.Path) -> None:
    source = """\
import trioperator

@trioperator.on.create("webapps")
@trioperator.on.update("webapps")
async def deploy(name, spec, meta, client):
    data = {"size": str(spec.get("size", 1))}
    await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    if meta.labels:
        raise KeyError("team")
"""
    explorer = Explorer(make_player(tmp_path, source))
    explorer.perturb([[{"spec": {"size": 1}}, {"spec": {"size": 2}}]], ["edit"], Budget(sequences=1, seconds=100))
    (finding,) = explorer.report.findings
    assert (finding.oracle, finding.fault, finding.states) == ("handlers", "edit", [{"spec": {}}])
    assert finding.perturbation == "At write 1, somebody labels the object"


def test_the_time_ends_the_search(tmp_path: pathlib.Path) -> None:
    report = Explorer(make_player(tmp_path, GOOD)).run(Budget(sequences=100, seconds=0.01))
    assert (report.sequences, report.stopped) == (1, "after 0.01 s")


def test_an_interrupt_keeps_what_was_found(tmp_path: pathlib.Path) -> None:
    def interrupt(report: SubjectReport) -> None:
        if report.findings:
            raise KeyboardInterrupt

    explorer = Explorer(make_player(tmp_path, FORGETFUL), on_progress=interrupt)
    report = explorer.run(Budget(sequences=100, seconds=100))
    assert len(report.findings) == 1
    assert report.stopped == "by an interrupt"


def test_a_field_without_effect_is_information(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioperator.testing.exploring.explorer._MANY_STATES", 8)
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    unused = make_crd(**schema["properties"]["spec"]["properties"], unused={"type": "boolean"})
    player = make_player(tmp_path, GOOD, unused)
    report = Explorer(player).run(Budget(sequences=12, seconds=100))
    assert report.without_effect == ["spec.unused"]


def test_a_field_that_matters_only_at_the_creation_has_an_effect(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator.testing.exploring.explorer._MANY_STATES", 4)
    source = """\
import trioperator

@trioperator.on.create("webapps")
async def create_fn(name, spec, client):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"all": str(spec)}}
    await client.create(child)
"""
    report = Explorer(make_player(tmp_path, source)).run(Budget(sequences=12, seconds=100))
    assert report.without_effect == []


def test_a_schema_whose_states_are_all_rejected_is_an_error(tmp_path: pathlib.Path) -> None:
    definition = make_crd(size={"type": "integer"})
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "has(self.size) && self.size == 424242", "message": "no such size"}]
    with pytest.raises(ConfigError, match=r"rejects all \d+ states of webapps.example.com .* no such size"):
        Explorer(make_player(tmp_path, GOOD, definition)).run(Budget(sequences=8, seconds=100))


def test_a_sequence_is_played_as_it_is(tmp_path: pathlib.Path) -> None:
    states: list[State] = [{"spec": {"size": 1, "greeting": "a"}}, {"spec": {"size": 1}}]
    report = Explorer(make_player(tmp_path, FORGETFUL)).play(states)
    assert [(finding.oracle, finding.states) for finding in report.findings] == [("path", states)]


def test_writes_that_are_held_back_hide_no_contention(tmp_path: pathlib.Path) -> None:
    report = Explorer(make_player(tmp_path, CONTENDED)).play([{"spec": {"size": 1}}])
    assert {"quiet", "cost"} & {each.oracle for each in report.findings}


@pytest.mark.parametrize("fault", ["crash", "edit", "blind"])
def test_shards_and_conditions_raise_no_alarm(fault: str, tmp_path: pathlib.Path) -> None:
    explorer = Explorer(make_player(tmp_path, SHARDED))
    states: list[State] = [{"spec": {"size": 1}}, {"spec": {"size": 2}}]
    explorer.perturb([states], [fault], Budget(sequences=1, seconds=100))
    assert explorer.report.perturbed > 3
    assert explorer.report.findings == []


def test_a_write_that_meets_a_pause_raises_no_alarm(tmp_path: pathlib.Path) -> None:
    handlers = "".join(
        f'\n@trioperator.on.{reason}("webapps")\nasync def {reason}_fn(patch):\n    patch.status["called"] = True\n'
        for reason in ("create", "update", "delete")
    )
    explorer = Explorer(make_player(tmp_path, f"import trioperator\n{handlers}"))
    explorer.perturb([[{"spec": {"size": 1}}]], ["edit"], Budget(sequences=1, seconds=100))
    assert explorer.report.findings == []


def test_what_is_missed_during_a_pause_is_found(tmp_path: pathlib.Path) -> None:
    source = """\
import trioperator

@trioperator.on.create("webapps")
async def create_fn(patch):
    patch.status["sizes"] = ["first"]

@trioperator.on.update("webapps", field="spec.size")
async def count_fn(new, patch, status):
    patch.status["sizes"] = [*status["sizes"], str(new)]
"""
    player = make_player(tmp_path, source)
    states: list[State] = [{"spec": {"size": size}} for size in (1, 2, 3)]
    plain = player.play(states)
    pauses = [Perturbation(fault="edit", at=at, what=PAUSES) for at in range(len(plain.writes))]
    found = [
        finding for each in pauses for finding in judge_perturbed(player.play(states, perturbation=each), plain, each)
    ]
    assert any("WebApp default/example: status.sizes" in line for each in found for line in each.differences)
