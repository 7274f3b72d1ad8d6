"""Tests for :mod:`trioperator.testing.exploring.oracles`: each finds its class of mistakes, and nothing else."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import pytest

from tests.testing.exploring.operators import GOOD, make_crd, make_player
from trioperator.testing.exploring.explorer import Explorer
from trioperator.testing.exploring.findings import Finding

HEAD = "import trioperator\n\n"
CHANGES = '@trioperator.on.create("webapps")\n@trioperator.on.update("webapps")\n'
CHILD = """\
async def apply_fn(name, spec, client):
    data = {"size": str(spec.get("size", 0))}
    await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
"""
SPEC = {
    "size": {"type": "integer", "minimum": 0, "maximum": 3},
    "greeting": {"type": "string"},
    "image": {"type": "string"},
}
DEPLOYMENT = """\
def deployment(name, **spec):
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    selector = {"matchLabels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": selector, "template": pod, **spec}}

"""


def find(folder: pathlib.Path, source: str, *specs: Mapping[str, object]) -> Sequence[Finding]:
    """Return what is found in a sequence of states."""
    player = make_player(folder, HEAD + source, make_crd(**SPEC))
    return Explorer(player).play([{"spec": spec} for spec in specs]).findings


def names(findings: Sequence[Finding]) -> list[str]:
    return [each.oracle for each in findings]


def test_nothing_is_found_of_a_good_operator(tmp_path: pathlib.Path) -> None:
    assert find(tmp_path, GOOD, {"size": 1}, {"greeting": "a"}, {"size": 2}, {"greeting": "a"}) == []


def test_path_finds_updates_that_nobody_handles(tmp_path: pathlib.Path) -> None:
    source = '@trioperator.on.create("webapps")\n' + CHILD
    (finding,) = find(tmp_path, source, {"size": 1}, {"size": 2})
    assert (finding.oracle, finding.lines) == (
        "path",
        ['ConfigMap default/example: data.size is "1", and should be "2"'],
    )


def test_revert_finds_what_does_not_lead_back(tmp_path: pathlib.Path) -> None:
    source = CHANGES + CHILD.replace("    await", "    if spec.get('size'):\n        await")
    (finding,) = find(tmp_path, source, {}, {"size": 2}, {})
    assert (finding.oracle, finding.lines) == ("revert", ["ConfigMap default/example should not be there"])
    assert len(finding.states) == 3


def test_wedge_finds_who_does_not_recover(tmp_path: pathlib.Path) -> None:
    source = (
        "@trioperator.on.reconcile('webapps', owns=['configmaps'], condition='Applied')\n"
        "def web_app(spec, conditions, body):\n"
        "    if any(each['status'] == 'False' for each in body.get('status', {}).get('conditions', ())):\n"
        "        raise trioperator.TemporaryError('still failing', delay=60)\n"
        "    if spec.get('size') == 0:\n"
        "        raise trioperator.PermanentError('no')\n"
        "    yield {'apiVersion': 'v1', 'kind': 'ConfigMap', 'data': {'size': str(spec.get('size'))}}\n"
    )
    findings = find(tmp_path, source, {"size": 0}, {"size": 1})
    assert "wedge" in names(findings)
    (finding,) = (each for each in findings if each.oracle == "wedge")
    assert "ConfigMap default/example is missing" in finding.lines


def test_quiet_finds_who_writes_for_ever(tmp_path: pathlib.Path) -> None:
    source = (
        "@trioperator.on.reconcile('webapps')\n"
        "async def web_app(patch):\n"
        "    patch.status['checked'] = trioperator.wall_now().isoformat()\n"
        "    return trioperator.Requeue(300)\n"
    )
    findings = find(tmp_path, source, {})
    assert names(findings) == ["quiet"]
    assert not findings[0].is_information


def test_quiet_is_information_for_a_schedule(tmp_path: pathlib.Path) -> None:
    source = (
        "@trioperator.on.reconcile('webapps')\n"
        "async def web_app(patch):\n"
        "    patch.status['checked'] = trioperator.wall_now().isoformat()\n"
        "    return trioperator.Requeue(1800)\n"
    )
    assert [each.is_information for each in find(tmp_path, source, {})] == [True]


def test_quiet_leaves_timers_alone(tmp_path: pathlib.Path) -> None:
    source = (
        "@trioperator.timer('webapps', interval=60)\n"
        "def tick(patch, status):\n"
        "    patch.status['ticks'] = status.get('ticks', 0) + 1\n"
    )
    assert find(tmp_path, source, {}) == []


def test_quiet_leaves_what_timers_create_alone_while_they_go_on(tmp_path: pathlib.Path) -> None:
    source = (
        "import trio\n\n@trioperator.timer('webapps', interval=600)\n"
        "async def tick(name, client):\n"
        "    meta = {'name': f'{name}-{int(trio.current_time())}'}\n"
        "    await client.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': meta})\n"
        "    await trio.sleep(60)\n"
    )
    assert "quiet" not in names(find(tmp_path, source, {}))


def test_release_finds_what_is_left_behind(tmp_path: pathlib.Path) -> None:
    source = CHANGES + CHILD.replace("data})", "data}, owner=None)")
    (finding,) = find(tmp_path, source, {"size": 1})
    assert (finding.oracle, finding.lines) == ("release", ["ConfigMap default/example is left behind"])


def test_release_tells_what_keeps_an_object_by_retrying(tmp_path: pathlib.Path) -> None:
    source = "\n@trioperator.on.delete('webapps')\ndef delete_fn():\n    raise trioperator.TemporaryError('not yet')\n"
    (finding,) = find(tmp_path, source, {"size": 1})
    assert "is kept by the finalizers" in finding.lines[0]
    assert finding.details == ["Handler 'delete_fn' failed temporarily: not yet"]


def test_effects_finds_what_is_undone_on_the_way(tmp_path: pathlib.Path) -> None:
    source = CHANGES + CHILD.replace(
        "    await", "    await client.delete('configmaps', name, missing_ok=True)\n    await"
    )
    findings = find(tmp_path, source, {"size": 1}, {"size": 1, "greeting": "a"})
    assert names(findings) == ["effects"]
    assert "deleted and created again" in findings[0].lines[0]


PASSWORD = """\
import secrets


%sasync def apply_fn(name, spec, client):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    await client.apply({**secret, "stringData": {"password": secrets.token_urlsafe()}})
"""


def test_effects_finds_passwords_that_each_change_makes_anew(tmp_path: pathlib.Path) -> None:
    findings = find(tmp_path, PASSWORD % CHANGES, {"size": 1}, {"size": 2}, {"size": 2, "greeting": "a"})
    assert names(findings) == ["effects"]
    assert findings[0].lines == ["Secret data.password is generated again, whatever changes"]
    assert len(findings[0].states) == 3


@pytest.mark.parametrize(
    "decorator",
    [
        '@trioperator.on.create("webapps")\n',
        '@trioperator.on.create("webapps")\n@trioperator.on.update("webapps", field="spec.size")\n',
    ],
    ids=["once", "for a field"],
)
def test_effects_finds_no_fault_with_values_that_depend_on_a_field(tmp_path: pathlib.Path, decorator: str) -> None:
    specs = {"size": 1}, {"size": 2}, {"size": 2, "greeting": "a"}, {"size": 1, "greeting": "a"}
    assert find(tmp_path, PASSWORD % decorator, *specs) == []


def test_cost_finds_loops(tmp_path: pathlib.Path) -> None:
    source = "@trioperator.on.reconcile('webapps')\ndef web_app(patch):\n    return trioperator.Requeue(1)\n"
    findings = find(tmp_path, source, {})
    assert set(names(findings)) == {"cost"}
    assert "times for one change" in findings[0].summary


def test_honesty_finds_who_is_ready_too_early(tmp_path: pathlib.Path) -> None:
    source = DEPLOYMENT + (
        "@trioperator.on.reconcile('webapps', owns=['deployments'])\n"
        "def web_app(name, conditions):\n"
        "    conditions.set('Ready', True, reason='Applied')\n"
        "    yield deployment(name, replicas=2)\n"
    )
    findings = find(tmp_path, source, {}, {"image": "a"})
    assert names(findings) == ["honesty"]


def test_handlers_finds_exceptions_with_their_place(tmp_path: pathlib.Path) -> None:
    source = CHANGES + "def apply_fn(spec):\n    spec['image']\n"
    (finding,) = find(tmp_path, source, {})
    assert finding.oracle == "handlers"
    assert finding.lines[0].startswith("KeyError: 'image' (")
    assert finding.lines[0].endswith("app.py:6)")


def test_exceptions_of_reconcile_handlers_have_a_place_too(tmp_path: pathlib.Path) -> None:
    source = "@trioperator.on.reconcile('webapps')\ndef web_app(spec):\n    return spec['image']\n"
    (finding,) = find(tmp_path, source, {})
    assert finding.lines[0].endswith("app.py:5)"), finding.lines


def test_what_was_refused_for_good_stays_as_it_is_without_an_alarm(tmp_path: pathlib.Path) -> None:
    source = (
        "@trioperator.on.create('webapps')\n"
        + CHILD
        + "\n\n@trioperator.on.update('webapps', field='spec.size')\ndef resize_fn():\n"
        "    raise trioperator.PermanentError('The size cannot change.')\n"
    )
    findings = find(tmp_path, source, {"size": 1}, {"size": 2}, {"size": 2, "greeting": "a"})
    assert findings
    assert all(each.is_information for each in findings), [each.lines for each in findings]


def test_handlers_finds_children_that_are_rejected(tmp_path: pathlib.Path) -> None:
    source = DEPLOYMENT + (
        "@trioperator.on.reconcile('webapps', owns=['deployments'])\n"
        "def web_app(name, spec):\n"
        "    yield deployment(name, replicas=spec.get('size', 1) - 1)\n"
    )
    (finding,) = find(tmp_path, source, {"size": 0})
    assert finding.oracle == "handlers"
    assert "must be greater than or equal to 0" in finding.lines[0]
    assert not finding.is_information


def test_handlers_finds_calls_that_do_not_return(tmp_path: pathlib.Path) -> None:
    source = "import trio\n\n" + CHANGES + "async def apply_fn():\n    await trio.sleep_forever()\n"
    assert {each.summary for each in find(tmp_path, source, {})} >= {"apply_fn does not return."}


def test_permanent_errors_are_information(tmp_path: pathlib.Path) -> None:
    source = CHANGES + "def apply_fn(spec):\n    raise trioperator.PermanentError('too large')\n"
    (finding,) = find(tmp_path, source, {})
    assert finding.is_information


@pytest.mark.parametrize("error", ["trioperator.TemporaryError('wait', delay=5)"])
def test_who_waits_does_not_fail(tmp_path: pathlib.Path, error: str) -> None:
    assert find(tmp_path, CHANGES + f"def apply_fn(spec):\n    raise {error}\n", {}) == []
