"""How snippets of the documentation are run: on an embedded API server, in virtual time, with all that they declare.

A block runs with the names that the blocks before it on its page have defined. A comment before it may say more, which
readers of the page do not see::

    <!-- snippet
    given(spec={"size": 3}, uncalled=["fail"])     # and any other code, which is run before the block
    -->

- Handlers are declared to an operator, for which an object of each of :data:`KINDS` is created, changed and deleted.
  Each handler must be called, and none may fail: see :class:`Given`.
- Functions whose names begin with ``test_`` are called with the fixtures of the test kit.
- Everything else is run as it is, with ``await`` where it has it, and with ``client`` and ``cluster``.

``<!-- snippet: declared, because … -->`` only runs the block, so that handlers are declared, but not called.
``<!-- snippet: compiled, because … -->`` does not even do that, but checks the names that it takes from modules.
``<!-- snippet: in real time, because … -->`` runs it while time passes as usual.
``<!-- snippet: see tests/test_x.py -->`` leaves the block to another test.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import inspect
import math
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.docs.pages import ROOT, Block
from trioperator._concurrency.clock import wall_now
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.errors import ReviewError
from trioperator.testing import OperatorRunner, open_runner

#: The custom kinds that pages are about.
KINDS: Final = {
    "databases": ("example.com", "Database"),
    "greetings": ("example.com", "Greeting"),
    "kopfexamples": ("kopf.dev", "KopfExample"),
    "webapps": ("example.com", "WebApp"),
    "widgets": ("example.com", "Widget"),
}
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclasses.dataclass
class Given:
    """What a block needs of its surroundings, as its comment says."""

    #: The spec of the objects, then the changes of it.
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)
    change: dict[str, Any] = dataclasses.field(default_factory=lambda: {"changed": True})
    #: The labels and annotations of the objects.
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Versions of the custom kinds: each object is also read in all of them.
    versions: tuple[str, ...] = ("v1",)
    #: Other objects that exist before the operator starts.
    objects: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    #: What is in the objects' status in the end.
    status: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: The handlers that are not called, and those that fail, as the page says.
    uncalled: list[str] = dataclasses.field(default_factory=list)
    failing: list[str] = dataclasses.field(default_factory=list)
    #: Variables of the environment.
    environ: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Called before the objects are deleted, or when the block has run.
    check: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    #: Called in the end, to undo what would stay in the process.
    cleanup: Callable[[], object] = lambda: None
    #: How long each step takes, in virtual time.
    seconds: float = 90


class Page:
    """The blocks of a page, which are run one after another, and share their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: MockClock) -> None:
        self._monkeypatch = monkeypatch
        self._clock = clock
        self._names: dict[str, Any] = {"__name__": "snippet", "trioperator": trioperator, "trio": trio}

    async def run(self, block: Block) -> None:
        """Run a block, as its comment says, in an empty folder that has only the examples."""
        how, _, _ = block.directive.partition(",")
        if how.startswith("see "):
            path = ROOT / how.removeprefix("see ")
            assert block.page.rpartition("/")[2] in path.read_text(), f"{path} does not mention the page"
            return
        tree = check_names(block)
        if how == "compiled":
            return
        given = Given()
        real = how == "in real time"
        self._clock.rate, self._clock.autojump_threshold = (1, math.inf) if real else (0, 0)
        try:
            async with self._surroundings(given) as (cluster, operator):
                await _define_kinds(cluster, given)
                await self._execute(block.context, f"the comment of {block}")
                await _define_kinds(cluster, given)
                await cluster.apply(given.objects)
                await self._execute(block.text, str(block))
                if tests := _list_tests(tree):
                    for name in tests:
                        await self._test(self._names[name], cluster, operator)
                elif how == "declared":
                    return
                elif tuple(get_default_registry()) and not operator.is_running:
                    await _Scenario(cluster, operator, given).play()
                else:
                    await given.check()
        finally:
            given.cleanup()

    @contextlib.asynccontextmanager
    async def _surroundings(self, given: Given) -> AsyncIterator[tuple[Cluster, OperatorRunner]]:
        """Open what a block finds: a cluster, an operator that it may start, a client, a nursery."""
        hooks = Hooks()
        cluster = Cluster(clock=wall_now, seed=0, webhooks={Hooks.host: hooks})

        def give(**changes: Any) -> None:
            for name, value in changes.items():
                assert hasattr(given, name), name
                setattr(given, name, value)
            for name, value in given.environ.items():
                self._monkeypatch.setenv(name, value)

        self._monkeypatch.setattr(trioperator, "WebhookServer", lambda **_: hooks)
        self._monkeypatch.setattr(trioperator, "open_client", lambda **_: _open_client(cluster))
        async with (
            _open_client(cluster) as client,
            cluster.open_controllers(),
            trio.open_nursery() as nursery,
            open_runner(cluster) as operator,
        ):
            self._names.update(given=give, cluster=cluster, client=client, operator=operator, nursery=nursery)
            yield cluster, operator

    async def _execute(self, text: str, name: str) -> None:
        code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        with trio.fail_after(12 * 3600):
            result = eval(code, self._names)
            if inspect.isawaitable(result):
                await result

    async def _test(self, test: Any, cluster: Cluster, operator: OperatorRunner) -> None:
        fixtures = {"cluster": cluster, "operator": operator, "autojump_clock": self._clock}
        names = inspect.signature(test).parameters
        with trio.fail_after(12 * 3600):
            if "cluster_url" in names:
                fixtures["cluster_url"] = await self._names["nursery"].start(serve_cluster, cluster)
            await test(**{name: fixtures[name] for name in names})
            self._names["nursery"].cancel_scope.cancel(reason="test ended")


class _Scenario:
    """The life of an object of each kind, with the handlers that a block has declared."""

    def __init__(self, cluster: Cluster, operator: OperatorRunner, given: Given) -> None:
        self._cluster = cluster
        self._operator = operator
        self._given = given

    async def play(self) -> None:
        cluster, given = self._cluster, self._given
        registry = get_default_registry()
        for handler in given.failing:
            self._operator.expect_failures(handler)
        await self._operator.start()
        wanted = [plural for plural in KINDS if self._is_wanted(registry, plural)]
        for plural in wanted:
            await cluster.create(self._make(plural))
        await trio.sleep(given.seconds)
        for plural in wanted:
            for version in given.versions:
                await cluster.get(f"{plural}.{version}.{KINDS[plural][0]}", "example")
            await cluster.patch(plural, "example", {"spec": given.change})
        await trio.sleep(given.seconds)
        await given.check()
        for plural in wanted:
            status = (await cluster.get(plural, "example")).get("status", {})
            assert {key: status.get(key) for key in given.status} == given.status
            await cluster.delete(plural, "example")
        await trio.sleep(given.seconds)
        await self._operator.stop()
        self._check_calls(registry)

    def _is_wanted(self, registry: OperatorRegistry, plural: str) -> bool:
        """Return whether a handler is for objects of this kind."""
        group, kind = KINDS[plural]
        names = {plural, kind, kind.lower(), f"{plural}.{group}", "kex", None}
        handlers = [handler for handler in registry if hasattr(handler, "selector")]
        selectors = [handler.selector for handler in handlers]
        return any(
            selector.group in (None, group) and {selector.any_name, selector.plural, selector.kind} <= names
            for selector in selectors
        )

    def _make(self, plural: str) -> dict[str, Any]:
        group, kind = KINDS[plural]
        metadata = {"name": "example", "labels": self._given.labels, "annotations": self._given.annotations}
        version = f"{group}/{self._given.versions[0]}"
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": self._given.spec}

    def _check_calls(self, registry: OperatorRegistry) -> None:
        called = {call.handler for call in self._operator.calls}
        # What is called for webhooks is not recorded: its results are in the responses.
        handlers = [each for each in registry if not isinstance(each, AdmissionHandler | ConversionHandler)]
        uncalled = {handler.id.rpartition(".<locals>.")[2] for handler in handlers} - called
        assert uncalled == set(self._given.uncalled)


class Hooks(httpx.AsyncBaseTransport):
    """A webhook server in memory: the transport for the API server, and the server for the operator."""

    host: Final = "hooks.test"

    def __init__(self) -> None:
        self._fn: WebhookFn | None = None

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        self._fn = fn
        yield {"url": f"https://{self.host}/hooks"}
        await trio.sleep_forever()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        review = msgspec.json.decode(await request.aread())
        assert self._fn is not None
        try:
            webhook: Any = urllib.parse.unquote(request.url.path.removeprefix("/hooks/"))
            return httpx.Response(200, json=await self._fn(review, webhook=webhook))
        except ReviewError as error:
            return httpx.Response(error.status, text=str(error))


def _open_client(cluster: Cluster) -> contextlib.AbstractAsyncContextManager[trioperator.Client]:
    from trioperator.client import open_client

    connection = trioperator.ConnectionInfo(server="http://cluster")
    return open_client(connection=connection, transport=cluster.transport())


async def _define_kinds(cluster: Cluster, given: Given) -> None:
    await cluster.apply([_make_crd(plural, given.versions) for plural in KINDS])


def _make_crd(plural: str, versions: tuple[str, ...]) -> dict[str, Any]:
    group, kind = KINDS[plural]
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}}
    version = {"served": True, "subresources": {"status": {}}, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**version, "name": name, "storage": name == versions[0]} for name in versions],
        },
    }


def _list_tests(tree: ast.Module) -> list[str]:
    functions = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return [function.name for function in functions if function.name.startswith("test_")]


def check_names(block: Block) -> ast.Module:
    """Compile a block, and look for the names that it takes from modules of the project."""
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trioperator":
            is_module = importlib.util.find_spec(f"trioperator.{node.attr}") is not None
            assert is_module or hasattr(trioperator, node.attr), f"{block}: there is no trioperator.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trioperator"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                is_package = hasattr(module, "__path__")
                is_module = is_package and importlib.util.find_spec(f"{node.module}.{alias.name}") is not None
                assert is_module or hasattr(module, alias.name), f"{block}: there is no {node.module}.{alias.name}"
    return tree
