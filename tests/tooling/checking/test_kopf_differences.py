"""Tests for :mod:`trioperator._tooling.checking.kopf_differences`.

What an operator that was written for Kopf meets here.
"""

from __future__ import annotations

import importlib
import sys

import pytest

from trioperator._tooling.checking import Effect, Source, find_kopf_differences
from trioperator._tooling.checking.kopf_differences import _NAMES, _OWN
from trioperator.kopf import install

FAILS, DIFFERS, NATIVE = Effect.FAILS, Effect.DIFFERS, Effect.NATIVE
STARTUP = "@kopf.on.startup()\ndef f(settings, **_):\n    "


def find(text: str) -> list[tuple[Effect, str]]:
    found = find_kopf_differences(Source.parse("m", "m.py", text))
    return [(each.effect, each.message) for each in found if "import kopf becomes" not in each.message]


@pytest.mark.parametrize(
    ("text", "effect", "words"),
    [
        ("import kopf.testing", NATIVE, "kopf.testing is trioperator.testing."),
        ("from kopf import on", NATIVE, "from trioperator import"),
        ("import kopf._cogs.structs.bodies", DIFFERS, "private to Kopf"),
        ("from kopf._cogs.structs import bodies", DIFFERS, "private to Kopf"),
        ("import kopf._cogs.clients.patching", FAILS, "use a client library for Kubernetes"),
        ("import kopf; kopf.AiohttpSession", FAILS, "return a kopf.ConnectionInfo"),
        ("import kopf; kopf.adop({})", FAILS, "kopf has no adop (did you mean adopt?)"),
        ("import kopf; kopf.on.craete", FAILS, "kopf.on has no craete (did you mean create?)"),
        ("import kopf; kopf.spawn_tasks()", NATIVE, "nursery.start(trioperator.operator)"),
        ("registry = 1; len(registry._changing._handlers)", NATIVE, "private to Kopf, and does not exist natively"),
        ("import kopf; kopf.cli.main()", NATIVE, "trioperator.cli.main()"),
        ("import kopf; kopf.run(vault=x)", FAILS, "kopf.run() has no option vault="),
        ("import kopf; kopf.OperatorSettings(x)", FAILS, "by name only"),
        ("import asyncio, kopf; asyncio.run(kopf.operator())", NATIVE, "trio.run(trioperator.operator)"),
        (f"import kopf\n{STARTUP}settings.queueing.idle_timeout = 1", DIFFERS, "has no effect"),
        (f"import kopf\n{STARTUP}settings.watching.chunk_size = 1", NATIVE, "settings.watching.page_size"),
        (f"import kopf\n{STARTUP}settings.posting.lvel = 1", NATIVE, "did you mean 'level'? It has no effect in Kopf"),
        (f"import kopf\n{STARTUP}settings.posting.lvel", FAILS, "did you mean 'level'?"),
        ("import logging; logging.getLogger('kopf.objects')", NATIVE, "kopf.objects is trioperator.objects"),
        ("import logging; logging.getLogger('kopf.reactor')", DIFFERS, "Nothing is logged by kopf.reactor"),
        ("def f(logger, **_): logger.info('', extra={})", DIFFERS, "also shows in the message"),
        ("def f(logger, **_): log.for_(logger).error('', extra={})", DIFFERS, "also shows in the message"),
        (
            "import kopf; kopf.WebhookServer(certfile='a', pkeyfile='b')",
            NATIVE,
            "natively, pass the same file as cafile=",
        ),
        ("def f(logger, **_): logger.process('', {})", FAILS, "no logging.LoggerAdapter"),
        ("a = 'kopf.zalando.org/KopfFinalizerMarker'", NATIVE, "unless you keep Kopf's prefix"),
        ("a = 'KOPF_RUN_NAMESPACE'", NATIVE, "TRIOPERATOR_RUN_NAMESPACE"),
        ("import asyncio\nasync def f(): await asyncio.sleep(1)", NATIVE, "use trio.sleep()"),
        ("import asyncio\nlock = asyncio.Lock()", NATIVE, "use trio.Lock"),
        ("import aiohttp\nasync def f(): aiohttp.ClientSession()", NATIVE, "use httpx.AsyncClient"),
        ("from aiohttp import web\nasync def f(): web.json_response({})", NATIVE, "use Quart-Trio on hypercorn"),
        ("import kopf\n@kopf.on.create\ndef f(**_): ...", FAILS, "no parentheses"),
    ],
)
def test_a_difference_is_found_with_its_effect(text: str, effect: Effect, words: str) -> None:
    [(found, message)] = find(text)
    assert found is effect
    assert words in message


def test_missing_private_names_are_found_beside_the_import() -> None:
    found = find("from kopf._core.engines.posting import event_queue_loop_var, event")
    assert [effect for effect, _ in found] == [DIFFERS, FAILS]
    assert "use kopf.event()" in found[1][1]


def test_import_kopf_has_another_name_natively() -> None:
    [difference] = find_kopf_differences(Source.parse("m", "m.py", "pass\nimport kopf"))
    assert (difference.line, difference.effect) == (2, NATIVE)
    assert "import trioperator as kopf" in difference.message


@pytest.mark.parametrize(
    "text",
    [
        "import kopf; kopf.on.create, kopf.adopt, kopf.lifecycles.asap, kopf.__version__, kopf.WebhookServer",
        "from .config import settings\nsettings.zenith.url",
        f"import kopf\n{STARTUP}settings.posting.enabled = False",
        "import logging\nlogger = logging.getLogger('app')\nlogger.info('', extra={})",
        "import logging\nlogging.info('', extra={})",
        "import logging\nclass A:\n def f(self): self.log = logging.getLogger('a'); self.log.info('', extra={})",
        "class Model(BaseModel, extra='allow'): config = ConfigDict(extra='allow')",
        "import kopf; kopf.WebhookServer(certfile='a', pkeyfile='b', cafile='c'), kopf.WebhookK3dServer()",
        "import asyncio\ndef f(): asyncio.run(g())",
        "from kubernetes_asyncio.client import V1ObjectMeta\nasync def f(): V1ObjectMeta()",
        "import kubernetes_asyncio.client as k\nasync def f(): k.models.v1_secret.V1Secret(), k.ApiException",
        "import kopf; kopf.run(clusterwide=True)",
        "import os; os.kopf",
    ],
)
def test_what_is_the_same_is_left_alone(text: str) -> None:
    assert find(text) == []


def test_a_line_is_reported_once_for_the_same_reason() -> None:
    assert (
        len(find("import asyncio\nasync def f():\n    async def g(): await asyncio.sleep(1) or asyncio.sleep(2)")) == 1
    )


def test_the_names_that_are_known_are_those_of_the_bridge() -> None:
    with install():
        kopf, _, _ = map(importlib.import_module, ("kopf", "kopf.cli", "kopf.testing"))
        assert [name for name in _OWN if not hasattr(kopf, name)] == []
        for name in _NAMES:
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute)
    assert "kopf" not in sys.modules
