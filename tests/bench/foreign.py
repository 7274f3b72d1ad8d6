"""What is received of a kind with many foreign objects: ``python -m tests.bench scale foreign``.

On a real API server, of ``$KUBEBUILDER_ASSETS``, as only that compresses. Handlers require a label that 100 objects
have, and the others do not. Bytes are counted by a proxy; an operator is measured without and with the foreign ones.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, Final

from tests.bench import scale, streaming
from tests.bench.figures import Figures
from tests.bench.processes import RunFailed, resident_mib
from tests.proxy import open_proxy

_HANDLED: Final = 100
_PADDING: Final = "x" * 4500  # so that an object has 5 kB
_LABELS: Final = {"tier": "gold"}

#: Who reads the kind, by name: sources of operators.
READERS: Final = {
    "event handlers": """
@on.event("loads", labels={"tier": "gold"})
async def see(**_): ...
""",
    "an index": """
@trioperator.index("loads", labels={"tier": "gold"})
async def names(name, **_):
    return {None: name}
""",
    "handlers of changes": """
@on.create("loads", labels={"tier": "gold"})
async def create(**_): ...
""",
    "daemons": """
@trioperator.daemon("loads", labels={"tier": "gold"})
async def daemon(stopped, **_):
    await stopped.wait()
""",
    "owns=": """
@on.reconcile("owners", owns=[trioperator.Owned("loads", labels={"tier": "gold"})])
async def desire(**_):
    return []
""",
}


@dataclasses.dataclass(frozen=True)
class _Proxied:
    """A server as operators behind a proxy see it."""

    kubeconfig: pathlib.Path
    pid: int


def _make_loads(prefix: str, count: int, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
    for number in range(count):
        made = scale.make_load("loads", f"{prefix}{number}", padding=_PADDING)
        made["metadata"]["labels"] = labels
        yield made


def _measure(server: streaming.RealServer, source: str) -> tuple[int, float]:
    """Return how many bytes an operator has received until it is idle, and its memory in MiB."""
    with tempfile.TemporaryDirectory(prefix="trioperator-scale-") as folder:
        kubeconfig = pathlib.Path(folder) / "kubeconfig"
        proxied = _Proxied(kubeconfig, server.pid)
        with open_proxy(server.kubeconfig, kubeconfig) as proxy, scale.running(proxied, source) as operator:
            operator.wait_ready()
            return proxy.received, resident_mib(operator.pid)


def measure(figures: Figures, count: int) -> None:
    """Measure who reads the handled objects of a kind, without and with foreign ones beside them."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets is None:
        raise RunFailed("set KUBEBUILDER_ASSETS: it takes a real API server")
    with streaming.open_real_server(pathlib.Path(assets)) as server:
        for plural in ("loads", "owners"):
            server.define(plural)
        server.create("loads", _make_loads("gold", _HANDLED, _LABELS))
        server.create("owners", [scale.make_load("owners", "one")])
        for source in READERS.values():
            _measure(server, source)  # until finalizers and records are there
        before = {name: _measure(server, source) for name, source in READERS.items()}
        server.create("loads", _make_loads("foreign", count, {"tier": "silver"}))
        for name, source in READERS.items():
            received, memory = (now - was for now, was in zip(_measure(server, source), before[name], strict=True))
            share = received / (count * 5000)
            what = f"{count} foreign objects beside {_HANDLED} handled ones, {name}"
            figures.add(what, f"{received / 2**20:.2f} MiB more received ({share:.2%}), {memory:.1f} MiB more memory")
