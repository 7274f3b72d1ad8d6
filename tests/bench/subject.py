"""The operator that both frameworks run, as it is: only features of Kopf's documentation.

The environment says what it is: ``BENCH_FRAMEWORK`` (``kopf`` or ``trioperator``), ``BENCH_STYLE`` (``sync`` or
``async`` handlers), ``BENCH_RESOURCE`` (group, version and plural), ``BENCH_KINDS`` (how many kinds, one by default),
``BENCH_HANDLERS`` (``lifecycle``, ``events``, ``indexing``, ``daemons``, ``timers`` or ``admission``), and
``BENCH_JOURNAL``, the file to which each call of a handler adds one line: what was called, for which object, and when.
``BENCH_PORT``, ``BENCH_CERT`` and ``BENCH_KEY`` are for the webhook server.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import trioperator as kopf
else:
    kopf = importlib.import_module(os.environ["BENCH_FRAMEWORK"])

if counted := os.environ.get("BENCH_COUNTED"):
    importlib.import_module("tests.bench.counted").prepare(counted)

RESOURCE = os.environ["BENCH_RESOURCE"].split("/")
STYLE = os.environ["BENCH_STYLE"]
HANDLERS = os.environ["BENCH_HANDLERS"]
JOURNAL = os.open(os.environ["BENCH_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what: str, name: str | None) -> None:
    """Add a line to the journal; whole lines, even from several threads."""
    os.write(JOURNAL, f"{what} {name} {time.monotonic_ns()}\n".encode())


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Switch off the posting of Kubernetes Events, unless it is to be measured: it is not what is compared."""
    settings.posting.enabled = "events" in os.environ.get("BENCH_WITH", "")
    if HANDLERS == "admission":
        settings.admission.server = kopf.WebhookServer(
            addr="127.0.0.1",
            port=int(os.environ["BENCH_PORT"]),
            certfile=os.environ["BENCH_CERT"],
            pkeyfile=os.environ["BENCH_KEY"],
        )


def ignore(**_: Any) -> None:
    """Do nothing with the objects of further kinds: there are none."""


for number in range(1, int(os.environ.get("BENCH_KINDS") or 1)):
    kopf.on.event(*RESOURCE[:-1], f"further{number}s")(ignore)


if HANDLERS == "events" and STYLE == "sync":

    @kopf.on.event(*RESOURCE)
    def seen(name: str | None, **_: Any) -> None:
        """Note each watch event."""
        note("event", name)


if HANDLERS == "events" and STYLE == "async":

    @kopf.on.event(*RESOURCE)
    async def seen_async(name: str | None, **_: Any) -> None:
        """Note each watch event."""
        note("event", name)


if HANDLERS == "lifecycle" and STYLE == "sync":

    @kopf.on.create(*RESOURCE)
    def created(name: str | None, **_: Any) -> None:
        """Note the creation."""
        note("create", name)

    @kopf.on.update(*RESOURCE)
    def updated(name: str | None, **_: Any) -> None:
        """Note the change."""
        note("update", name)

    @kopf.on.delete(*RESOURCE)
    def deleted(name: str | None, **_: Any) -> None:
        """Note the deletion."""
        note("delete", name)

    @kopf.on.resume(*RESOURCE)
    def resumed(name: str | None, **_: Any) -> None:
        """Note that the object is seen again."""
        note("resume", name)


if HANDLERS == "lifecycle" and STYLE == "async":

    @kopf.on.create(*RESOURCE)
    async def created_async(name: str | None, **_: Any) -> None:
        """Note the creation."""
        note("create", name)

    @kopf.on.update(*RESOURCE)
    async def updated_async(name: str | None, **_: Any) -> None:
        """Note the change."""
        note("update", name)

    @kopf.on.delete(*RESOURCE)
    async def deleted_async(name: str | None, **_: Any) -> None:
        """Note the deletion."""
        note("delete", name)

    @kopf.on.resume(*RESOURCE)
    async def resumed_async(name: str | None, **_: Any) -> None:
        """Note that the object is seen again."""
        note("resume", name)


def is_first(name: str | None, **_: Any) -> bool:
    """Choose one object of all."""
    return name == "workload-00000"


if HANDLERS == "indexing" and STYLE == "sync":

    @kopf.index(*RESOURCE)
    def by_image(name: str | None, spec: kopf.Spec, **_: Any) -> Any:
        """Index the object."""
        return {spec["image"]: name}

    @kopf.on.event(*RESOURCE, when=is_first)
    def ready(name: str | None, **_: Any) -> None:
        """Note that all objects are indexed."""
        note("ready", name)


if HANDLERS == "indexing" and STYLE == "async":

    @kopf.index(*RESOURCE, id="by_image")
    async def by_image_async(name: str | None, spec: kopf.Spec, **_: Any) -> Any:
        """Index the object."""
        return {spec["image"]: name}

    @kopf.on.event(*RESOURCE, when=is_first)
    async def ready_async(name: str | None, **_: Any) -> None:
        """Note that all objects are indexed."""
        note("ready", name)


if HANDLERS == "daemons":

    @kopf.daemon(*RESOURCE)
    async def accompany(name: str | None, stopped: Any, **_: Any) -> None:
        """Note the beginning and the end."""
        note("spawn", name)
        await stopped.wait()
        note("stop", name)


if HANDLERS == "timers" and STYLE == "sync":

    @kopf.timer(*RESOURCE, interval=1)
    def tick(name: str | None, **_: Any) -> None:
        """Note each call."""
        note("tick", name)


if HANDLERS == "timers" and STYLE == "async":

    @kopf.timer(*RESOURCE, interval=1)
    async def tick_async(name: str | None, **_: Any) -> None:
        """Note each call."""
        note("tick", name)


if HANDLERS == "admission" and STYLE == "sync":

    @kopf.on.validate(*RESOURCE, id="validate")
    def validate(name: str | None, spec: kopf.Spec, **_: Any) -> None:
        """Check the object."""
        note("validate", name)
        if spec.get("replicas", 0) > 100:
            raise kopf.AdmissionError("Too many replicas.", code=400)


if HANDLERS == "admission" and STYLE == "async":

    @kopf.on.validate(*RESOURCE, id="validate")
    async def validate_async(name: str | None, spec: kopf.Spec, **_: Any) -> None:
        """Check the object."""
        note("validate", name)
        if spec.get("replicas", 0) > 100:
            raise kopf.AdmissionError("Too many replicas.", code=400)
