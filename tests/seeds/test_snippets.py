"""Each snippet of Kopf's documentation runs after ``import trioperator as kopf``.

The documentation is not part of the project: where it is kept beside it, all of its code is taken from there. What
snippets leave out is filled in: names of users' own code, other client libraries, Trio in place of asyncio, webhook
servers in memory. An operator starts with what they declare, and calls it for an object that is created, changed and
deleted.
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import functools
import inspect
import logging
import os
import random
import re
import traceback
import types
import typing
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
import trio
import yaml
from trio.testing import MockClock

import trioperator
from tests.docs.pages import ROOT
from tests.docs.running import Hooks
from tests.seeds.conftest import CRD, example
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner
from trioperator.testing.operator_runner import open_unchecked_runner

#: The requirements, where they are kept beside the project.
SEEDS = next((found for folder in ROOT.parents if (found := folder / "shared" / "seeds" / "code.md").exists()), None)
TEXT = "" if SEEDS is None else SEEDS.read_text()
SNIPPETS = re.findall(r"^### (\S+) · [^\n]*\n```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
CHAPTERS: dict[str, list[tuple[str, str]]] = {}
for _id, _code in SNIPPETS:
    CHAPTERS.setdefault(_id.rpartition("-")[0], []).append((_id, _code))
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "coredns", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"app": "dns"}},
        "template": {
            "metadata": {"labels": {"app": "dns"}},
            "spec": {"containers": [{"name": "main", "image": "dns"}]},
        },
    },
}
#: What is run elsewhere.
ELSEWHERE = {"001-kopf-package-08": "KopfRunner is for a process without Trio: tests/testing/test_kopf_runner.py"}


@pytest.fixture(autouse=True)
def filters() -> Iterator[None]:
    """Remove the filters that snippets add to Kopf's loggers, which others read."""
    loggers = [logging.getLogger(name) for name in ("kopf", "kopf.objects", "kopf.activities")]
    before = [list(logger.filters) for logger in loggers]
    yield
    for logger, kept in zip(loggers, before, strict=True):
        logger.filters[:] = kept


#: What denies the object of this test.
DENIED = {"001-admission-control-04": "I don't like it"}
#: Imports that are replaced.
REPLACED = re.compile(
    r"^(?:import (?:asyncio|time|kubernetes(?:\.client)?|uvloop|pykube)|from kopf\.cli .*)\n", re.MULTILINE
)


class Anything(dict[str, Any]):
    """Stand-in for users' own code, and for libraries that are not installed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self


def run(program: Any) -> None:
    """Check what is passed to ``asyncio.run()``, which would not return."""
    program.close()


def make_names(hooks: Hooks) -> dict[str, Any]:
    """Return the names that snippets use without defining them."""
    anything = Anything()
    loop = {"run": run, "new_event_loop": anything, "set_event_loop_policy": anything, "create_task": anything}
    in_trio = {"sleep": trio.sleep, "CancelledError": trio.Cancelled, "Event": trio.Event, "Lock": trio.Lock}
    objs = [{"kind": "Job"}, {"kind": "Deployment", "spec": {"template": {}}}]
    owner = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "o", "uid": "u"}}
    users = "background client_config handler_id headers is_data_ready kubernetes patch_parent pykube request sslpeer"
    users += " some_coroutine uvloop PotentiallyLeakableResource"

    async def fn(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()

    return {
        **vars(typing),
        **dict.fromkeys(users.split(), anything),
        **{module.__name__: module for module in (datetime, functools, logging, os, random, yaml)},
        "AsyncIterator": AsyncIterator,
        "Mapping": Mapping,
        "Memo": trioperator.Memo,
        "__file__": "example.py",
        "__name__": __name__,
        "asyncio": types.SimpleNamespace(Task=list, **loop, **in_trio),
        "fn": fn,
        "kopf": trioperator,
        "objs": objs,
        "owner": owner,
        "time": types.SimpleNamespace(sleep=lambda seconds: trio.from_thread.run(trio.sleep, seconds)),
    }


async def execute(snippet: str, text: str, names: dict[str, Any]) -> None:
    """Run the code of a snippet."""
    text = REPLACED.sub("", text).replace("import kopf\n", "import trioperator as kopf\n")
    text = text.replace("from kopf.testing", "from trioperator.testing")
    code = compile(text, snippet, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    if inspect.isawaitable(result):
        await result


async def call_handlers(operator: OperatorRunner, cluster: Cluster, hooks: Hooks, names: dict[str, Any]) -> None:
    """Start the operator, and let an object be created, changed and deleted."""
    settings = trioperator.OperatorSettings()
    settings.admission.server, settings.admission.managed = hooks, "auto.kopf.dev"
    memo = names["CustomContext"]("Hello, {name}!", "Bye, {name}!") if "CustomContext" in names else None
    await operator.start(standalone=True, settings=settings, memo=memo)
    await cluster.create(
        example("kopf-example-1", field="value", items=["item1"], size="1G", validUntil="2099-12-31T00:00:00Z")
    )
    await trio.sleep(11)
    await cluster.patch("kex", "kopf-example-1", {"spec": {"field": "world", "items": ["item2"]}})
    await trio.sleep(11)
    await cluster.delete("kex", "kopf-example-1")
    await trio.sleep(11)
    await operator.stop()


def is_own_fault(error: BaseException) -> bool:
    """Return whether an error of a handler comes from the framework, not from the snippet or what it leaves out."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and str(ROOT / "trioperator") in frames[-1].filename


@pytest.mark.skipif(SEEDS is None, reason="the requirements are not here")
@pytest.mark.parametrize("chapter", CHAPTERS)
async def test_the_snippets_of_a_chapter_run(
    chapter: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ""
    for snippet, text in CHAPTERS[chapter]:
        if snippet in ELSEWHERE:
            continue
        hooks = Hooks()
        for server in ("WebhookServer", "WebhookK3dServer"):
            monkeypatch.setattr(
                trioperator, server, type(server, (Hooks,), {"__new__": lambda *_, _hooks=hooks, **__: _hooks})
            )
        cluster = Cluster(clock=wall_now, seed=0, webhooks={Hooks.host: hooks})
        await cluster.apply([CRD, DEPLOYMENT])
        async with open_unchecked_runner(cluster) as operator:
            names = make_names(hooks)
            if "continued from" in text:
                await execute(f"before {snippet}", before, names)
            run_snippet = functools.partial(execute, snippet, text, names)
            if chapter == "001-hierarchies" and "@kopf" not in text:  # it stands in a handler
                trioperator.on.create("kopfexamples", id="snippet")(lambda run=run_snippet: run())
            else:
                await run_snippet()
            if chapter.startswith("000"):  # lines are lost there: 001 has them all
                continue
            if tuple(trioperator.get_default_registry()):
                denied = snippet in DENIED
                with pytest.raises(trioperator.ApiError, match=DENIED[snippet]) if denied else contextlib.nullcontext():
                    await call_handlers(operator, cluster, hooks, names)
        faults = [call.error for call in operator.calls if call.error is not None and is_own_fault(call.error)]
        assert faults == [], snippet
        before = text


def test_none_is_missing() -> None:
    assert SEEDS is None or len(SNIPPETS) == TEXT.count("```python\n") == 253
