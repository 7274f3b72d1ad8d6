"""Each example is run on an embedded cluster that it finds as it would find any other, and shows what its page says."""

from __future__ import annotations

import datetime
import importlib.util
import inspect
import logging
import pathlib
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator._supervisor.app import operator
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError
from trioperator.testing import OperatorRunner, check_states, eventually

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
HANDLED = "Handling cycle is finished"


class Lines(logging.Handler):
    """Log lines, which tests can wait for."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self._changed = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        self.lines += text.splitlines()
        self._token.run_sync_soon(self._wake)  # records come from threads, too

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def count(self, text: str) -> int:
        """Return the number of lines with the text."""
        return sum(text in line for line in self.lines)

    async def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the text has been logged that often."""
        with trio.move_on_after(90) as scope:
            while self.count(text) < times:
                await self._changed.wait()
        if scope.cancelled_caught:
            pytest.fail(f"{text!r} was not logged {times} times, but this was:\n" + "\n".join(self.lines))


def load(path: pathlib.Path) -> Any:
    """Import a file of an example, and return the module."""
    spec = importlib.util.spec_from_file_location(f"example_{path.parent.name[:2]}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Example:
    """A running example."""

    def __init__(self, name: str, cluster: Cluster, lines: Lines, nursery: trio.Nursery) -> None:
        self.name = name
        self.cluster = cluster
        self.lines = lines
        self.liveness = "http://127.0.0.1:0/healthz" if name == "13-hooks" else None
        self._nursery = nursery
        self._stop = trio.Event()
        self._ended = trio.Event()

    def load(self) -> None:
        """Import the example, so that its decorators fill the default registry."""
        load(EXAMPLES / self.name / "main.py")

    async def start(self) -> None:
        await self._nursery.start(self._run)

    async def stop(self) -> None:
        self._stop.set()
        await self._ended.wait()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._stop, self._ended = trio.Event(), trio.Event()
        await operator(stop_flag=self._stop, liveness_endpoint=self.liveness, task_status=task_status)
        self._ended.set()

    async def apply(self) -> None:
        await self.cluster.apply(EXAMPLES / "obj.yaml")

    async def patch(self, field: str | None) -> None:
        await self.cluster.patch("kex", "kopf-example-1", {"spec": {"field": field}})

    async def get(self) -> dict[str, Any]:
        return await self.cluster.get("kex", "kopf-example-1")

    async def delete(self) -> None:
        await self.cluster.delete("kex", "kopf-example-1")

    def assert_shows_what_its_page_says(self) -> None:
        assert_shows_what_its_page_says(self.name, self.lines)


def assert_shows_what_its_page_says(name: str, logged: Lines) -> None:
    """Look for the lines of the text blocks of an example's page, without the objects' names before them."""
    page = (EXAMPLES / name / "README.md").read_text()
    blocks = [part.split("```", 1)[0] for part in page.split("```text\n")[1:]]
    shown = [line.removesuffix("…").rstrip() for block in blocks for line in block.splitlines() if line != "…"]
    lines = [line.split("] ", 1)[-1] for line in shown]
    assert lines
    missing = [line for line in lines if not logged.count(line)]
    assert not missing, "\n".join(["Not seen:", *missing, "But:", *logged.lines])


@pytest.fixture
def registry() -> Iterator[OperatorRegistry]:
    before = get_default_registry()
    fresh = OperatorRegistry()
    set_default_registry(fresh)
    yield fresh
    set_default_registry(before)


@pytest.fixture
async def lines() -> AsyncIterator[Lines]:
    logger = logging.getLogger("trioperator")
    level = logger.level
    handler = Lines()
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
async def served(
    cluster: Cluster, cluster_url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Cluster:
    """Return the cluster with the custom resource, to which $KUBECONFIG points."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(msgspec.json.encode(cluster.kubeconfig(str(cluster_url))))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await cluster.apply(EXAMPLES / "crd.yaml")
    return cluster


@pytest.fixture
async def example(
    request: pytest.FixtureRequest, served: Cluster, lines: Lines, registry: OperatorRegistry, nursery: trio.Nursery
) -> Example:
    example = Example(request.param, served, lines, nursery)
    example.load()
    await example.start()
    return example


def running(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True)


@running("01-minimal")
async def test_minimal(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    obj = await example.get()
    assert obj["status"] == {"create_fn": {"message": "Hello, kopf-example-1!"}}
    assert "trioperator.dev/last-handled-configuration" in obj["metadata"]["annotations"]
    example.assert_shows_what_its_page_says()


@running("02-children")
async def test_children(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    owner = await example.get()
    pod = await example.cluster.get("pods", "kopf-example-1")
    assert pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert pod["spec"]["containers"][0]["command"] == ["sh", "-c", "sleep 1m"]

    await example.delete()
    with trio.fail_after(90):
        # The cluster collects its garbage when it has the time, without any event.
        while await example.cluster.find("pods", "kopf-example-1") is not None:  # noqa: ASYNC110
            await trio.sleep(0.02)
    example.assert_shows_what_its_page_says()


@running("02-children")
async def test_a_second_attempt_makes_no_second_child(example: Example) -> None:
    await example.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "kopf-example-1"},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
    )
    await example.apply()
    await example.lines.wait_for("The child Pod already exists")
    await example.lines.wait_for(HANDLED)
    assert len(await example.cluster.list("pods")) == 1


@running("03-exceptions")
async def test_exceptions(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    example.assert_shows_what_its_page_says()
    attempts = {
        "wait_for_third_attempt": 3,
        "fail_permanently": 1,
        "give_up_after_three_attempts": 3,
        "give_up_immediately": 1,
        "ignore_errors": 1,
    }
    invoked = {name: example.lines.count(f"Handler {name!r} is invoked.") for name in attempts}
    assert invoked == attempts


@running("04-events")
async def test_events(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    status = (await example.get())["status"]
    assert status == {
        "conditions": [{"type": "Counted", "status": "True", "message": "2 items"}],
        "create_fn": {"message": "Counted 2 items."},
    }
    example.assert_shows_what_its_page_says()
    start = example.lines.lines.index("Traceback (most recent call last):")
    assert "04-events" in example.lines.lines[start + 1]
    await example.stop()
    events = await example.cluster.list("events")
    assert sorted((event["type"], event["reason"]) for event in events) == [
        ("Error", "BadDuration"),
        ("Normal", "SomeReason"),
        ("SomeType", "SomeReason"),
        ("Warning", "SomeReason"),
    ]


@running("05-handlers")
async def test_handlers(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    await example.patch("another value")
    await example.lines.wait_for(HANDLED, times=2)
    await example.stop()
    await example.start()
    await example.lines.wait_for(HANDLED, times=3)
    await example.delete()
    await example.lines.wait_for("Deleted, really deleted")
    assert await example.cluster.list("kex") == []
    example.assert_shows_what_its_page_says()


@running("06-peering")
async def test_peering(example: Example) -> None:
    await example.lines.wait_for("Pausing operations")  # the peering object does not exist yet
    await example.cluster.apply(EXAMPLES / "06-peering" / "peering.yaml")
    await example.apply()
    await example.lines.wait_for("is handled by this operator")
    dev = {"priority": 666, "lifetime": 60, "lastseen": datetime.datetime.now(datetime.UTC).isoformat()}
    await example.cluster.patch("clusterkopfpeerings", "example", {"status": {"dev": dev}})
    await example.lines.wait_for("The daemon stops")
    await example.cluster.patch("clusterkopfpeerings", "example", {"status": {"dev": None}})
    await example.lines.wait_for("Resuming operations.", times=2)
    example.assert_shows_what_its_page_says()


@running("07-subhandlers")
async def test_subhandlers(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    status = (await example.get())["status"]
    assert status == {"create": {"items": 2}, "create/item1": "created", "create/item2": "created"}
    assert [example.lines.count(f"Created {item}.") for item in ("item1", "item2")] == [1, 1]
    for item in ("item3", "item4"):
        await example.cluster.patch("kex", "kopf-example-1", {"spec": {"items": ["item1", "item2", item]}})
        await example.lines.wait_for(f"Items to add: {item}.")
    await example.lines.wait_for(HANDLED, times=2)
    assert not example.lines.count("Added item3.")
    example.assert_shows_what_its_page_says()


@running("08-events")
async def test_raw_events(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for("ADDED: kopf-example-1")
    await example.patch("another value")
    await example.lines.wait_for("MODIFIED: kopf-example-1")
    await example.stop()
    await example.start()
    await example.lines.wait_for("LISTED: kopf-example-1")
    await example.delete()
    await example.lines.wait_for("DELETED: kopf-example-1")
    await example.lines.wait_for("will ignore it", times=4)
    assert {request.method for request in example.cluster.requests} == {"GET"}
    example.assert_shows_what_its_page_says()


@running("09-testing")
async def test_testing(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    example.assert_shows_what_its_page_says()


TESTS = load(EXAMPLES / "09-testing" / "test_main.py")


@pytest.mark.parametrize("name", sorted(name for name in vars(TESTS) if name.startswith("test_")))
async def test_tests(name: str, operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock) -> None:
    test = vars(TESTS)[name]
    given = {"operator": operator, "cluster": cluster, "autojump_clock": autojump_clock}
    await test(**{parameter: given[parameter] for parameter in inspect.signature(test).parameters})


@running("10-builtins")
async def test_builtins(example: Example) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    for name, seconds in (("short", "1"), ("long", "1000")):
        metadata = {"name": name, "annotations": {"example.com/lifetime": seconds}}
        await example.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await example.lines.wait_for("Daemon 'expire' succeeded.")
    assert [pod["metadata"]["name"] for pod in await example.cluster.list("pods")] == ["long"]
    await example.cluster.patch("pods", "long", {"metadata": {"annotations": None}})
    await example.lines.wait_for("Somebody else was faster")
    writes = {(request.method, request.path) for request in example.cluster.requests if "/pods" in request.path}
    assert {method for method, _ in writes} == {"GET", "DELETE"}
    example.assert_shows_what_its_page_says()


@running("11-filtering")
async def test_filtering(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    await example.patch("another value")
    await example.lines.wait_for(HANDLED, times=2)
    await example.patch(None)
    await example.lines.wait_for(HANDLED, times=3)
    example.assert_shows_what_its_page_says()
    assert not example.lines.count("'never'")


async def test_embedded(served: Cluster, lines: Lines, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIND", "127.0.0.1:0")
    await served.apply(EXAMPLES / "obj.yaml")
    module, ended = load(EXAMPLES / "12-embedded" / "main.py"), trio.Event()

    async def run(task_status: trio.TaskStatus[str]) -> None:
        await module.main(task_status=task_status)
        ended.set()

    url = await nursery.start(run)
    await lines.wait_for("The operator is ready.")
    await eventually(lambda: module.fields, timeout=90)
    async with httpx.AsyncClient(base_url=url, timeout=90) as client:
        response = await client.get("/")
    assert response.json() == {"kopf-example-1": "value"}
    signal.raise_signal(signal.SIGTERM)
    with trio.fail_after(90):
        await ended.wait()
    assert_shows_what_its_page_says("12-embedded", lines)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/main.py")), ids=lambda path: path.parent.name)
def test_examples_are_short_and_have_a_page_that_is_listed(path: pathlib.Path) -> None:
    assert len(path.read_text().splitlines()) <= (100 if path.parent.name == "19-database" else 60)
    assert path.with_name("README.md").exists()
    assert f"{path.parent.name}/README.md" in (EXAMPLES / "README.md").read_text()
    assert f"examples/{path.parent.name}/main.py" in path.with_name("README.md").read_text()


@running("13-hooks")
async def test_hooks(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    [line] = [line for line in example.lines.lines if line.startswith("Serving health")]
    async with httpx.AsyncClient() as client:
        response = await client.get(line.split()[-1])
    assert response.json() == {"limit": 2.0}
    await example.stop()
    example.assert_shows_what_its_page_says()


@running("14-daemons")
async def test_daemons(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for("Waiting in a thread.")
    await example.lines.wait_for("The field is now value.")
    body = await example.get()
    assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
    assert body["status"] == {"attempts": 2}
    await example.patch("other")
    await example.lines.wait_for("The field is now other.")
    await example.cluster.patch("kex", "kopf-example-1", {"metadata": {"labels": {"somelabel": None}}})
    await example.lines.wait_for("Stopped watching.")
    await example.delete()
    await example.lines.wait_for("Daemon 'wait' succeeded.")
    with trio.fail_after(90):
        while await example.cluster.list("kex"):  # noqa: ASYNC110 -- seen from outside
            await trio.sleep(0.02)
    example.assert_shows_what_its_page_says()


@running("15-timers")
async def test_timers(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for("The field has settled at value.")
    await example.lines.wait_for("Timer 'check' succeeded.")
    await example.lines.wait_for("The clock ticks.")
    await example.patch("other")
    await example.lines.wait_for("The field has settled at other.")
    example.assert_shows_what_its_page_says()
    beats = example.lines.count("Beat ")
    assert (await example.get())["status"]["beats"] in (beats - 1, beats)


@running("16-indexing")
async def test_indexing(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for("My Pods: none.")
    for name, labels in (("pod-1", {"for": "kopf-example-1"}), ("pod-2", {})):
        spec = {"containers": [{"name": name, "image": "busybox"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        await example.cluster.create(pod)
    await example.lines.wait_for("My Pods: pod-1 is Pending.")
    await example.cluster.delete("pods", "pod-1")
    await example.lines.wait_for("My Pods: none.", 2)
    example.assert_shows_what_its_page_says()


@running("18-authentication")
async def test_authentication(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    example.assert_shows_what_its_page_says()


@running("19-database")
async def test_database(example: Example) -> None:
    async with example.cluster.open_controllers():
        await example.apply()
        await example.lines.wait_for("The user postgres has a password.")
        await example.cluster.wait_for("kex", "kopf-example-1", "Ready")
        await example.cluster.patch("kex", "kopf-example-1", {"spec": {"users": ["ada", "bob"]}})
        await example.lines.wait_for("The user bob has a password.")
        await example.cluster.patch("kex", "kopf-example-1", {"spec": {"users": ["ada"]}})
        await example.lines.wait_for("The user bob is dropped.")
    example.assert_shows_what_its_page_says()


@running("20-reconcile")
async def test_reconcile(example: Example) -> None:
    name, applied = "kopf-example-1", "{} default/kopf-example-1 is applied."
    await example.apply()
    await example.lines.wait_for(applied.format("Service"))
    await example.cluster.patch("kex", name, {"spec": {"host": "example.com"}})
    await example.lines.wait_for(applied.format("Ingress"))
    await example.cluster.patch("kex", name, {"spec": {"host": None}})
    await example.lines.wait_for("Ingress default/kopf-example-1 is deleted")
    await example.cluster.patch("kex", name, {"spec": {"maxReplicas": 5}})
    await example.lines.wait_for(applied.format("HorizontalPodAutoscaler"))
    await example.cluster.patch("deployments", name, {"spec": {"replicas": 3}})
    await example.lines.wait_for(applied.format("Deployment"), 2)
    image = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "busybox"}
    await example.cluster.patch("deployments", name, [image])
    await example.lines.wait_for(applied.format("Deployment"), 3)
    assert (await example.cluster.get("deployments", name))["spec"]["replicas"] == 3, "they are the autoscaler's"
    await example.cluster.delete("services", name)
    await example.lines.wait_for(applied.format("Service"), 2)
    example.assert_shows_what_its_page_says()


def test_reconcile_hands_the_replicas_over_and_leaves_nothing_behind() -> None:
    states: list[Mapping[str, Any]] = [
        {"spec": {"replicas": 5, "host": "a.example.com"}},
        {"spec": {"replicas": 5, "maxReplicas": 10}},
        {"spec": {"replicas": 5, "maxReplicas": 2}},
        {"spec": {"replicas": 0, "maxReplicas": 2}},
        {"spec": {"maxReplicas": 2}},
    ]
    check_states(states, EXAMPLES / "20-reconcile" / "main.py", crds=[EXAMPLES / "crd.yaml"])


@running("21-typed")
async def test_typed(example: Example, registry: OperatorRegistry) -> None:
    for definition in crds.collect_definitions(registry):
        await example.cluster.apply(definition)
    await example.cluster.apply(EXAMPLES / "21-typed" / "obj.yaml")
    await example.lines.wait_for(HANDLED)
    assert (await example.cluster.get("databases", "orders"))["status"] == {"phase": "Ready", "size": 5}
    with pytest.raises(ApiError, match="disks have 10 GiB or more"):
        await example.cluster.patch("db", "orders", {"spec": {"storage": "disk"}})
    example.assert_shows_what_its_page_says()


@running("99-all-at-once")
async def test_all_at_once(example: Example) -> None:
    await example.apply()
    await example.lines.wait_for(HANDLED)
    metadata = {"name": "pod-1", "labels": {"application": "all-at-once"}}
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    await example.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await example.lines.wait_for("Watch event for pod-1: ADDED.")
    await example.patch("another value")
    await example.lines.wait_for(HANDLED, times=2)
    with trio.fail_after(90):
        while (await example.get())["status"].get("pods") != 1:  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert (await example.get())["status"]["create_1"] == {"message": "Hello, kopf-example-1!"}
    await example.stop()
    await example.start()
    await example.lines.wait_for("Part item2 is done.", times=2)
    await example.delete()
    await example.lines.wait_for("Deleted, really deleted")
    assert await example.cluster.list("kex") == []
    example.assert_shows_what_its_page_says()
