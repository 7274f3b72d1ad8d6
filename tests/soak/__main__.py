"""``python -m tests.soak``: an operator amid everything that goes wrong, killed again and again; nothing may be lost.

``python -m tests.soak ports`` attacks the ports of an operator instead: see :mod:`tests.soak.ports`;
``python -m tests.soak kinds`` makes an operator watch hundreds of kinds: see :mod:`tests.soak.kinds`;
``python -m tests.soak attack`` attacks it as tenants and pods without rights can: see :mod:`tests.soak.attack`;
``python -m tests.soak migration`` kills the migration of thousands of objects: see :mod:`tests.soak.migration`;
``python -m tests.soak hostile`` measures what it keeps of large objects: see :mod:`tests.soak.hostile`.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import random
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import trio
import trustme

from tests.bench.objects import prepare
from tests.bench.servers import ApiServer, find_assets, open_embedded, open_real
from tests.soak import attack, hostile, kinds, migration, ports
from tests.soak.lives import Lives
from tests.soak.load import Load
from tests.soak.pooled_transport import PooledTransport
from tests.soak.proxy import Proxy, Weather
from tests.soak.verdict import find_unsettled, read_journal
from trioperator import OperatorSettings
from trioperator._kube.api_client import open_client
from trioperator._kube.connection import load_connection
from trioperator.testing import FaultPlan, FaultyTransport

# Seconds without any progress, when nothing goes wrong any more, until what is not settled never will be. The longest
# delays are those of handlers and requests that have failed several times.
_PATIENCE = 120.0
_MAX_PROBLEMS = 20


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=1200, help="how long things go wrong (default: %(default)g)")
    add("--objects", type=int, default=2000, help="(default: %(default)s)")
    add("--rate", type=float, default=15, help="changes in a second (default: %(default)g)")
    add("--period", type=float, default=30, help="seconds until the operator is killed (default: %(default)g)")
    add("--seed", type=int, default=random.randrange(10**6), help="of faults and changes (default: random)")
    add("--server", choices=["real", "embedded"], default="real", help="API server (default: %(default)s)")
    add("--keep", type=pathlib.Path, metavar="DIR", help="keep logs and the journal in this new directory")
    return parser.parse_args(arguments)


@dataclasses.dataclass(slots=True, kw_only=True)
class Soak:
    """Everything that takes part."""

    options: argparse.Namespace
    load: Load
    lives: Lives
    proxy: Proxy
    weather: Weather
    problems: list[str] = dataclasses.field(default_factory=list)

    async def run(self) -> None:
        """Let things go wrong for a while, and then check that nothing is lost."""
        until = trio.current_time() + self.options.seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(self.lives.run, period=self.options.period, until=until))
            with trio.move_on_at(until):
                async with trio.open_nursery() as trouble:
                    trouble.start_soon(self.weather.change)
                    trouble.start_soon(self._report)
                    await self.load.fill()
                    await self.load.run(self.options.rate)
            print(f"Fine weather. In all: {_show(self._counts())}", flush=True)
            await self._check()
            nursery.cancel_scope.cancel()
        await self.lives.end(signal.SIGTERM)
        self._check_journal()

    def _counts(self) -> collections.Counter[str]:
        faults = {f"({name})": number for name, number in self.weather.counts.items()}
        return collections.Counter({**self.load.counts, **self.lives.counts, **faults})

    async def _report(self) -> None:
        before, began = self._counts(), trio.current_time()
        while True:
            await trio.sleep(30)
            counts = self._counts()
            print(f"{trio.current_time() - began:5.0f} s: {_show(counts - before)}", flush=True)
            before = counts

    async def _check(self) -> None:
        """Check the objects, those that live on and those that are deleted, and their daemons and timers."""
        await self._wait_until("converged", self._find_unsettled)
        await self._wait_until("with their daemons and timers", self._find_stray_daemons)
        await self.load.delete_all()
        await self._wait_until("released", self._find_left)

    async def _wait_until(self, state: str, find_problems: Callable[[], Any]) -> None:
        began = progress_at = trio.current_time()
        fewest = sys.maxsize
        while problems := await find_problems():
            if len(problems) < fewest:
                fewest, progress_at = len(problems), trio.current_time()
            elif trio.current_time() > progress_at + _PATIENCE:
                self.problems.append(f"{len(problems)} problems with objects that should be {state}:")
                self.problems += problems[:_MAX_PROBLEMS]
                return
            await trio.sleep(2)
        print(f"All objects are {state} after {trio.current_time() - began:.0f} s.", flush=True)

    async def _find_unsettled(self) -> list[str]:
        return find_unsettled(await self.load.list())

    async def _find_stray_daemons(self) -> list[str]:
        items = await self.load.list()
        wanted = {
            id: {item["metadata"]["uid"] for item in items if item["metadata"]["labels"][id] == "yes"}
            for id in ("daemon", "timer")
        }
        journal = read_journal(self.lives.journal)
        daemons, ticks = journal.daemons[self.lives.pid], journal.ticks[self.lives.pid]
        return [
            *(f"{uid}: there is no daemon" for uid in wanted["daemon"] - daemons),
            *(f"{uid}: there is a daemon" for uid in daemons - wanted["daemon"]),
            *(f"{uid}: there is no timer" for uid in wanted["timer"] - ticks),
        ]

    async def _find_left(self) -> list[str]:
        return [f"{item['metadata']['name']}: {item['metadata']['finalizers']}" for item in await self.load.list()]

    def _check_journal(self) -> None:
        journal = read_journal(self.lives.journal)
        lost = journal.find_lost_deletions(self.load.deleted)
        self.problems += [f"{uid}: its deletion was not handled" for uid in lost[:_MAX_PROBLEMS]]
        self.problems += [f"{uid}: its daemon has not ended" for uid in journal.daemons[self.lives.pid]]
        self.problems += [*journal.problems, *self.lives.problems]
        again = sum(number > 1 for number in journal.deletions.values())
        print(f"Of {len(self.load.deleted)} deletions with a finalizer {again} were handled more than once.")


@contextlib.asynccontextmanager
async def open_soak(options: argparse.Namespace, server: ApiServer, folder: pathlib.Path) -> AsyncIterator[Soak]:
    """Connect everything that takes part."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    plan = FaultPlan(seed=options.seed)
    pooled = PooledTransport(load_connection([server.operator_kubeconfig]))
    proxy = Proxy(FaultyTransport(pooled, plan), context, seed=options.seed)
    direct = load_connection([server.kubeconfig])
    async with open_client(lambda: direct, settings=OperatorSettings()) as client, trio.open_nursery() as nursery:
        await nursery.start(proxy.serve)
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(server.operator_kubeconfig, kubeconfig, port=proxy.port, authority=authority)
        lives = Lives(folder, kubeconfig)
        try:
            yield Soak(
                options=options,
                load=Load(client, objects=options.objects, seed=options.seed),
                lives=lives,
                proxy=proxy,
                weather=Weather(plan, proxy, seed=options.seed),
            )
        finally:
            lives.kill()
            nursery.cancel_scope.cancel()
            await pooled.aclose()


def write_kubeconfig(original: pathlib.Path, path: pathlib.Path, *, port: int, authority: trustme.CA) -> None:
    """Write the operator's kubeconfig with the address of the proxy."""
    config = json.loads(original.read_text())
    certificate = base64.b64encode(authority.cert_pem.bytes()).decode()
    config["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": certificate,
    }
    path.write_text(json.dumps(config))


async def soak(options: argparse.Namespace, server: ApiServer, folder: pathlib.Path) -> list[str]:
    """Run a soak, and return its problems."""
    async with open_soak(options, server, folder) as everything:
        await everything.run()
        return everything.problems


def _show(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def main(arguments: list[str]) -> int:
    """Run what is asked for. Returns 1 if there were problems."""
    if arguments[:1] == ["ports"]:
        return ports.main(arguments[1:])
    if arguments[:1] == ["attack"]:
        return attack.main(arguments[1:])
    if arguments[:1] == ["migration"]:
        return migration.main(arguments[1:])
    if arguments[:1] == ["hostile"]:
        return hostile.main(arguments[1:])
    if arguments[:1] == ["kinds"]:
        return kinds.main(arguments[1:])
    options = parse_options(arguments)
    print(f"seed {options.seed}: {options.objects} objects, {options.seconds:g} s", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with contextlib.ExitStack() as stack:
        folder = options.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        folder.mkdir(parents=True, exist_ok=True)
        if options.server == "embedded":
            server = stack.enter_context(open_embedded(folder=folder / "server"))
        elif assets := find_assets():
            server = stack.enter_context(open_real(assets, folder=folder / "server"))
        else:
            sys.exit("set KUBEBUILDER_ASSETS, or use --server embedded")
        prepare(server.kubeconfig)
        problems = trio.run(soak, options, server, folder)
    print(*problems, f"seed {options.seed}: {'FAILED' if problems else 'passed'}", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
