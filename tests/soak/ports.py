"""``python -m tests.soak ports``: an operator's ports under attack, by raw bytes and half-finished requests.

Hundreds of connections send, wait, reset and start again, while a proper probe must be answered within a second.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import trio

from tests.bench.processes import cpu_seconds, resident_mib
from tests.http.attacks import mutate
from tests.program import Program
from trioperator._http.endpoint import Endpoint

_PROBE = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_INTERVAL = 0.2
_RAMP = 30.0  # seconds until all connections are there: five hundred in one moment are a second of CPU for any server
_OPERATOR = """
import trioperator

@trioperator.on.probe(id="alive")
def probe(**_):
    return True

@trioperator.on.create("configmaps")
def create(**_):
    pass
"""


@dataclasses.dataclass(slots=True)
class Attack:
    """Attack on an endpoint. ``latencies`` are those of proper probes, in seconds; ``problems`` those that failed."""

    endpoint: Endpoint
    seed: int
    patience: float = 1.0
    """Seconds that a probe may take."""
    sent: int = 0
    latencies: list[float] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    async def run(self, *, connections: int, seconds: float) -> None:
        """Attack for a while, and probe meanwhile and once more afterwards."""
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for number in range(connections):
                    rng = random.Random(f"{self.seed}-{number}")
                    nursery.start_soon(self._attack, rng, rng.uniform(0, min(_RAMP, seconds / 10)))
                while True:
                    await trio.to_thread.run_sync(self._probe)
                    await trio.sleep(_INTERVAL)
        await trio.to_thread.run_sync(self._probe)

    async def _attack(self, rng: random.Random, delay: float) -> None:
        await trio.sleep(delay)
        while True:
            await trio.sleep(rng.expovariate(2))
            with contextlib.suppress(OSError, trio.BrokenResourceError):
                async with await trio.open_tcp_stream(self.endpoint.host, self.endpoint.port) as stream:
                    self.sent += 1
                    await _misuse(stream, rng)

    def _probe(self) -> None:
        """Send a proper probe on a connection of its own; in a thread, so that the attackers' work does not count."""
        began = time.monotonic()
        response = b""
        try:
            with socket.create_connection((self.endpoint.host, self.endpoint.port), self.patience) as sock:
                sock.sendall(_PROBE % self.endpoint.path.encode())
                while data := sock.recv(65_536):
                    response += data
        except OSError as error:
            self.problems.append(f"a probe failed after {time.monotonic() - began:.2f} s: {error}")
            return
        latency = time.monotonic() - began
        self.latencies.append(latency)
        if latency > self.patience or not response.startswith(b"HTTP/1.1 200 "):
            self.problems.append(f"a probe was answered by {response[:60]!r} after {latency:.2f} s")


async def _misuse(stream: trio.SocketStream, rng: random.Random) -> None:
    """Send bytes at random, in pieces or not to their end; read, wait, close or reset."""
    data = mutate(rng)
    data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data
    pieces = rng.choice([1, 1, 1, 3])
    size = max(1, -(-len(data) // pieces))
    for start in range(0, len(data), size):
        await stream.send_all(data[start : start + size])
        await trio.sleep(rng.choice([0, 0.01, 1]) if pieces > 1 else 0)
    if rng.random() < 0.2:
        await stream.send_eof()
    with trio.move_on_after(rng.choice([0, 0.1, 3, 60])):
        if rng.random() < 0.5:
            while await stream.receive_some(65_536):
                pass
        else:
            await trio.sleep_forever()
    if rng.random() < 0.3:  # a reset
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def open_operator(folder: pathlib.Path) -> Iterator[tuple[Program, Endpoint]]:
    """Run an operator with the embedded API server and a health endpoint."""
    file, log = folder / "operator.py", folder / "operator.log"
    file.write_text(_OPERATOR)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as sock:
        endpoint = Endpoint(host="127.0.0.1", port=sock.getsockname()[1], path="/healthz")
    command = [sys.executable, "-m", "trioperator", "run", "-A", "--embedded", f"--liveness={endpoint}", str(file)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        program = Program(process, log)
        program.wait_for("The operator is ready.")
        yield program, endpoint
    finally:
        process.kill()
        process.wait()


def main(arguments: list[str]) -> int:
    """Attack an operator. Returns 1 if a probe or the operator failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak ports", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="(default: %(default)g)")
    parser.add_argument("--connections", type=int, default=500, help="at the same time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="(default: random)")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}: {options.connections} connections, {options.seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="ports-") as folder, open_operator(pathlib.Path(folder)) as opened:
        program, endpoint = opened
        pid = program.process.pid
        memory, cpu = resident_mib(pid), cpu_seconds(pid)
        attack = Attack(endpoint, options.seed)
        trio.run(lambda: attack.run(connections=options.connections, seconds=options.seconds))
        problems = attack.problems
        if program.process.poll() is None:
            print(f"memory: {memory:.0f} MiB before, {resident_mib(pid):.0f} MiB afterwards")
            print(f"CPU: {cpu_seconds(pid) - cpu:.1f} s")
        code = program.stop(signal.SIGTERM)
        if code != 0 or "Traceback" in program.output:
            problems.append(f"the operator ended with the exit code {code}:\n{program.output[:4000]}")
    slowest = max(attack.latencies, default=0)
    print(f"{attack.sent} connections; {len(attack.latencies)} probes, the slowest one after {slowest:.3f} s")
    print(*problems[:20], f"seed {options.seed}: {'FAILED' if problems else 'passed'}", sep="\n")
    return 1 if problems else 0
