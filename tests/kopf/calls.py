"""An operator that prints each call of its handlers, for both, and what is done to its objects."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tests.kopf.examples import Log
from trioperator.apiserver import Cluster

OPERATOR: Final = r"""
import asyncio
import json
import os
import kopf

def plain(value):
    if isinstance(value, kopf.Diff):
        return sorted([item.op.value, list(item.field), plain(item.old), plain(item.new)] for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if hasattr(value, "items") else value

def note(name, what, **values):
    line = json.dumps([name, what, {key: plain(value) for key, value in values.items()}], sort_keys=True)
    os.write(1, f"\nCALL {line}\n".encode())  # at once, as threads write at the same time

def named(word):
    return lambda name, **_: name.startswith(word)

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

# Fields: what handlers of them get, by the kinds of changes.
for path in ("spec.a", "spec.a.b", "spec.lst", "spec", "metadata.labels", "status.x", "metadata.annotations.mine"):
    for on in (kopf.on.field, kopf.on.create, kopf.on.update, kopf.on.delete):
        @on("shapes", field=path, id=f"{on.__name__}-{path}", param=f"{on.__name__} {path}", when=named("field"))
        def of_field(name, param, old, new, diff, reason, **_):
            note(name, param, old=old, new=new, diff=diff, reason=reason)

SIDES = {
    "old-1-new-2": {"old": 1, "new": 2},
    "old-absent": {"old": kopf.ABSENT},
    "new-absent": {"new": kopf.ABSENT},
    "both-present": {"old": kopf.PRESENT, "new": kopf.PRESENT},
    "value-2": {"value": 2},
    "value-absent": {"value": kopf.ABSENT},
    "value-of-a-function": {"value": lambda value, **_: isinstance(value, int) and value > 1},
}
for title, options in SIDES.items():
    @kopf.on.update("shapes", field="spec.a.b", id=title, param=title, when=named("field"), **options)
    def of_sides(name, param, old, new, **_):
        note(name, param, old=old, new=new)

# Errors: how often, and with which counts.
def failing(title, error, **options):
    @kopf.on.create("shapes", id=title, when=named("error"), **options)
    def fail(name, retry, **_):
        note(name, title, retry=retry)
        raise error

MODES = kopf.ErrorsMode
failing("three-attempts", ValueError(), retries=3, backoff=0.1)
failing("permanent", ValueError(), errors=MODES.PERMANENT)
failing("ignored", ValueError(), errors=MODES.IGNORED)
failing("ignored-with-attempts", ValueError(), errors=MODES.IGNORED, retries=2)
failing("temporary-error", kopf.TemporaryError("x", delay=0.1), retries=2)
failing("temporary-error-at-once", kopf.TemporaryError("x", delay=0), retries=3)
failing("temporary-error-without-a-delay", kopf.TemporaryError("x", delay=None), retries=2)
failing("temporary-error-permanent-mode", kopf.TemporaryError("x", delay=0.1), errors=MODES.PERMANENT, retries=2)
failing("temporary-error-ignoring-mode", kopf.TemporaryError("x", delay=0.1), errors=MODES.IGNORED, retries=2)
failing("permanent-error", kopf.PermanentError("x"), retries=5)
failing("no-attempt", ValueError(), retries=0)
failing("one-attempt", ValueError(), retries=1)
failing("no-time", ValueError(), timeout=0)

@kopf.on.create("shapes", id="last", when=named("error"))
def end(name, retry, **_):
    if retry < 4:
        raise kopf.TemporaryError("x", delay=1)
    note(name, "last")

# What handlers get, and what becomes of results and patches.
@kopf.on.create("shapes", when=named("kwargs"), param={"p": 1})
@kopf.daemon("shapes", id="daemon", when=named("kwargs"), param=3)
@kopf.on.delete("shapes", id="delete", when=named("kwargs"))
def kwargs(name, **kwargs):
    del kwargs["logger"], kwargs["memo"]
    what = "daemon" if "stopped" in kwargs else str(kwargs["reason"])
    note(name, what, names=sorted(kwargs), param=kwargs["param"], retry=kwargs["retry"])

@kopf.on.event("shapes", when=named("event"))
def event(name, type, event, patch, status, **kwargs):
    note(name, "event", type=type, keys=sorted(event), names=sorted(kwargs), count=status.get("count"))
    if type != "DELETED" and status.get("count", 0) < 3:
        patch.status["count"] = status.get("count", 0) + 1
    return {"seen": True}

for number, result in enumerate([None, "", 0, False, [], {}, [1, 2], {"a": None}, "text", 1.5, {"nested": {"x": [1]}}]):
    @kopf.on.create("shapes", id=f"result{number}", param=result, when=named("result"))
    def give(param, **_):
        return param

@kopf.on.create("shapes", when=named("patch"))
def change(patch, name, **_):
    patch.spec["added"] = {"y": None, "z": 1}
    patch.meta.labels["l"] = "v"
    patch.metadata.annotations["mine"] = "v"
    patch.status["x"] = [1]
    patch.fns.append(lambda body: body["spec"].update(by="a function"))
    note(name, "patch", patch=dict(patch))
    raise kopf.PermanentError("it is stored all the same")

@kopf.on.create("shapes", when=named("body"))
def show(name, body, meta, spec, status, labels, resource, memo, **_):
    note(name, "body", keys=sorted(body), spec=repr(spec), labels=repr(labels), status=repr(status), memo=repr(memo))
    note(name, "resource", resource=str(resource), verbs=sorted(resource.verbs), url=resource.get_url(namespace="x"))
    created, deleted = type(meta.creation_timestamp).__name__, meta.deletion_timestamp
    note(name, "meta", keys=sorted(meta), created=created, deleted=deleted)
    calls = {"item": lambda: spec["x"], "attribute": lambda: body.x, "set": lambda: spec.update(x=1)}
    for title, call in calls.items():
        try:
            call()
        except Exception as error:
            note(name, title, error=type(error).__name__)
    children = [{"spec": {"template": {}}}, {}]
    kopf.adopt(children)
    kopf.label(children, {"l": "1"}, nested=["spec.template"])
    kopf.append_owner_reference(children)
    for child in children:
        child["metadata"]["ownerReferences"][0].pop("uid", None)  # they may share one
    note(name, "children", children=children)

# Indices, by the results of their functions.
def index(title, result):
    @kopf.index("shapes", id=title, when=named("index"))
    def of(name, spec, **_):
        return result(name, spec)

def fail_at_2(error):
    def result(name, spec):
        if spec["v"] == 2:
            raise error
        return {name: spec["v"]}
    return result

index("mapped", lambda name, spec: {name: spec["v"]})
index("named_only", lambda name, spec: name)
index("listed", lambda name, spec: [1, 2])
index("keys", lambda name, spec: {("t", spec["v"]): name, None: spec["v"]})
index("none_at_2", lambda name, spec: None if spec["v"] == 2 else {name: spec["v"]})
index("nothing", lambda name, spec: {})
index("temporary", fail_at_2(kopf.TemporaryError("x", delay=1e6)))
index("permanent", fail_at_2(kopf.PermanentError("x")))
index("raising", fail_at_2(ValueError()))
INDICES = ("mapped", "named_only", "listed", "keys", "none_at_2", "nothing", "temporary", "permanent", "raising")

@kopf.on.event("shapes", when=named("index"))
def indexed(name, type, spec, **_):
    note(name, f"indexed {spec['v']}", type=type)

@kopf.on.event("shapes", when=named("probe"))
def probe(name, spec, **kwargs):
    def describe(index):
        return sorted([repr(key), sorted(map(repr, store))] for key, store in index.items())
    found = {index: describe(kwargs[index]) for index in INDICES}
    note(name, f"probe {spec['n']}", truth=[bool(kwargs[index]) for index in INDICES], **found)

# Events: their types when an object begins and ceases to match.
@kopf.on.event("configmaps", labels={"enter": "1"})
def entered(name, type, **_):
    note(name, "entered", type=type)

# Daemons: why they stop.
@kopf.daemon("shapes", when=named("daemon"))
async def waiting(name, stopped, **_):
    note(name, "waiting begins", reason=str(stopped.reason))
    await stopped.wait()
    note(name, "waiting ends", reason=str(stopped.reason))

@kopf.daemon("shapes", when=named("daemon"), labels={"stop": kopf.ABSENT})
async def filtered(name, stopped, **_):
    note(name, "filtered begins")
    await stopped.wait()
    note(name, "filtered ends", reason=str(stopped.reason))

@kopf.daemon("shapes", when=named("daemon"), cancellation_backoff=0.2, cancellation_timeout=1)
async def deaf(name, stopped, **_):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(name, "deaf is cancelled", reason=str(stopped.reason))
        raise

@kopf.daemon("shapes", when=named("daemon"), retries=3, backoff=0.1)
async def failing_daemon(name, retry, **_):
    note(name, "failing daemon", retry=retry)
    raise ValueError

# Causes: what supersedes what.
@kopf.on.create("shapes", when=named("super"))
def create(name, retry, spec, **_):
    note(name, "create", retry=retry, n=spec["n"])
    if spec["n"] == 0:
        raise kopf.TemporaryError("x", delay=0.3)

@kopf.on.update("shapes", when=named("super"))
def update(name, retry, diff, spec, **_):
    note(name, "update", retry=min(retry, 1), diff=diff)
    if spec["n"] == 2:
        raise kopf.TemporaryError("x", delay=0.3)

# Functions with the same id: the same file is loaded again by each KopfRunner of a test suite.
for number in range(3):
    @kopf.on.create("shapes", id="twin", when=named("twin"), param=number)
    @kopf.on.delete("shapes", id="twin", when=named("twin"), param=number)
    def twin(name, reason, param, retry, twin_index, **_):
        note(name, str(reason), param=param, retry=retry, indexed=[*twin_index[name]])
        if retry == 0 and reason == "create":
            raise kopf.TemporaryError("x", delay=0.1)

    @kopf.daemon("shapes", id="twin-daemon", when=named("twin"), param=number)
    async def twin_daemon(name, param, stopped, **_):
        note(name, "daemon", param=param)
        await stopped.wait()

    @kopf.timer("shapes", id="twin-timer", when=named("twin"), param=number, interval=100)
    def twin_timer(name, param, **_):
        note(name, "timer", param=param)

    @kopf.index("shapes", id="twin_index", when=named("twin"), param=number)
    def twin_index(name, param, **_):
        return {name: param}

@kopf.on.resume("shapes", when=named("super"))
@kopf.on.delete("shapes", when=named("super"), id="delete")
def rest(name, reason, **_):
    note(name, str(reason))
"""

Act = Callable[[Cluster, Log], Awaitable[None]]
SCENARIOS: Final[dict[str, Act]] = {}


def scenario(act: Act) -> Act:
    SCENARIOS[act.__name__] = act
    return act


def find_calls(text: str) -> dict[str, list[str]]:
    """Return the calls by objects and functions, in the order of each."""
    found: dict[str, list[str]] = {}
    for name, what, values in map(json.loads, re.findall(r"^CALL (.*)$", text, re.MULTILINE)):
        calls = found.setdefault(f"{name}: {what}", [])
        calls.append(json.dumps(values))
    return found


async def create(cluster: Cluster, name: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> None:
    meta = {"name": name, "namespace": "default", "labels": dict(labels or {})}
    await cluster.create({"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": meta, "spec": spec})


async def called(log: Log, name: str, what: str, *values: str) -> None:
    """Wait until a function has been called for an object, with these values among others."""
    pattern = re.escape(f'CALL ["{name}", "{what}", ') + "".join(f".*{re.escape(value)}" for value in values)
    assert await log.wait_for(pattern), f"{pattern} is not in:\n{log.text}"


async def handled(cluster: Cluster, name: str, *, x: Any = None, labels: Any = None, **spec: Any) -> None:
    """Wait until an object with these fields is recorded as handled, and nothing is tried again."""
    prefix = "kopf.zalando.org/"

    def check(obj: Any) -> bool:
        records = {key for key in obj["metadata"].get("annotations", {}) if key.startswith(prefix)}
        last = json.loads(obj["metadata"].get("annotations", {}).get(f"{prefix}last-handled-configuration", "{}"))
        is_current = all(last.get("spec", {}).get(key) == value for key, value in spec.items())
        is_current = is_current and labels in (None, last.get("metadata", {}).get("labels"))
        is_current = is_current and x in (None, last.get("status", {}).get("x"))
        return bool(last) and is_current and records == {f"{prefix}last-handled-configuration"}

    await cluster.wait_for("shapes", name, check)


async def change(cluster: Cluster, name: str, **patch: Any) -> None:
    await cluster.patch("shapes", name, patch, subresource="status" if "status" in patch else "")


@scenario
async def fields(cluster: Cluster, log: Log) -> None:
    await create(cluster, "field", a={"b": 1}, lst=[1])
    await handled(cluster, "field")
    for spec in ({"a": {"b": 2}}, {"a": {"b": None}}, {"a": {"b": 2, "c": 1}, "lst": []}, {"a": None, "o": 1}):
        await change(cluster, "field", spec=spec)
        await handled(cluster, "field", **{key: spec[key] for key in ("o", "lst") if key in spec})
        stored = (await cluster.get("shapes", "field"))["spec"]
        await handled(cluster, "field", **stored)
    await change(cluster, "field", status={"x": 5})
    await called(log, "field", "update status.x")
    await handled(cluster, "field", x=5)
    await change(cluster, "field", metadata={"labels": {"l": "1"}, "annotations": {"mine": "1"}})
    await called(log, "field", "update metadata.annotations.mine")
    await handled(cluster, "field", labels={"l": "1"})
    await cluster.delete("shapes", "field")
    await cluster.wait_deleted("shapes", "field")


@scenario
async def errors(cluster: Cluster, log: Log) -> None:
    await create(cluster, "error")
    await called(log, "error", "last")
    await handled(cluster, "error")


@scenario
async def arguments_results_and_patches(cluster: Cluster, log: Log) -> None:
    for name in ("kwargs", "event", "result", "patch", "body"):
        await create(cluster, name, k=1, labels={"x": "1"})
    for name in ("kwargs", "result", "body"):
        await handled(cluster, name)
    await called(log, "event", "event", '"count": 3')
    await called(log, "kwargs", "daemon")
    await cluster.wait_for("shapes", "patch", lambda obj: obj["spec"].get("by"))
    for name in ("event", "kwargs"):
        await cluster.delete("shapes", name)
        await cluster.wait_deleted("shapes", name)
    await called(log, "event", "event", '"DELETED"')


@scenario
async def indices(cluster: Cluster, log: Log) -> None:
    await create(cluster, "index-1", v=1)
    await create(cluster, "index-2", v=1)
    for name in ("index-1", "index-2"):
        await called(log, name, "indexed 1")
    await create(cluster, "probe", n=1)
    await called(log, "probe", "probe 1")
    for number, value in ((2, 2), (3, 3)):
        await change(cluster, "index-1", spec={"v": value})
        await called(log, "index-1", f"indexed {value}")
        await change(cluster, "probe", spec={"n": number})
        await called(log, "probe", f"probe {number}")
    await cluster.delete("shapes", "index-2")
    await called(log, "index-2", "indexed 1", "DELETED")
    await change(cluster, "probe", spec={"n": 4})
    await called(log, "probe", "probe 4")


@scenario
async def events_of_objects_that_enter(cluster: Cluster, log: Log) -> None:
    await create(cluster, "result")
    await handled(cluster, "result")  # so that it is running
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}})
    for label in ("1", "0", "1"):
        await cluster.patch("configmaps", "c", {"metadata": {"labels": {"enter": label}}})
        await called(log, "c", "entered")
    await cluster.delete("configmaps", "c")
    await called(log, "c", "entered", "DELETED")


@scenario
async def twins(cluster: Cluster, log: Log) -> None:
    await create(cluster, "twin")
    await called(log, "twin", "daemon")
    await handled(cluster, "twin")
    await cluster.delete("shapes", "twin")
    await cluster.wait_deleted("shapes", "twin")


@scenario
async def daemons(cluster: Cluster, log: Log) -> None:
    await create(cluster, "daemon-1")
    await create(cluster, "daemon-2")
    for name in ("daemon-1", "daemon-2"):
        await called(log, name, "filtered begins")
        await called(log, name, "waiting begins")
        await called(log, name, "failing daemon", '"retry": 2')
    await change(cluster, "daemon-1", metadata={"labels": {"stop": "yes"}})
    await called(log, "daemon-1", "filtered ends")
    await cluster.delete("shapes", "daemon-1")
    await called(log, "daemon-1", "waiting ends")
    await called(log, "daemon-1", "deaf is cancelled")


@scenario
async def causes(cluster: Cluster, log: Log) -> None:
    await create(cluster, "super", n=0)
    await called(log, "super", "create")
    await change(cluster, "super", spec={"n": 1})
    await called(log, "super", "create", '"n": 1')
    await handled(cluster, "super", n=1)
    await change(cluster, "super", spec={"n": 2})
    await called(log, "super", "update", '"retry": 0')
    await cluster.delete("shapes", "super")
    await called(log, "super", "delete")
    await cluster.wait_deleted("shapes", "super")
