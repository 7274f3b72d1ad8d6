"""The load generator: a process that sends requests over a few connections and records when each got its response.

``python -m tests.bench.load KUBECONFIG OPERATION COUNT`` prints one JSON object when it ends, a :class:`LoadResult`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from tests.bench.api import MERGE_PATCH, ApiFailed, Connection, Target, load_target
from tests.bench.objects import COLLECTION, build_object

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """When the load began and ended, and when each object's last request got its response (monotonic nanoseconds)."""

    began: int
    ended: int
    answered: dict[str, int]


def object_name(number: int) -> str:
    """Name the object of this number."""
    return f"workload-{number:05}"


def run_load(
    kubeconfig: pathlib.Path, operation: str, count: int, *, concurrency: int = 20, repeats: int = 1, pause: float = 0.0
) -> LoadResult:
    """Run the load generator in a process of its own until it ends.

    *repeats* is how often each object is changed, one pass over all objects after another; *pause* is what each
    connection waits between two requests, in seconds.
    """
    command = [sys.executable, "-m", "tests.bench.load", str(kubeconfig), operation, str(count)]
    command += ["--concurrency", str(concurrency), "--repeats", str(repeats), "--pause", str(pause)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ApiFailed(f"the load generator failed at '{operation}': {done.stderr.strip()[-1000:]}")
    return LoadResult(**json.loads(done.stdout))


class _Generator:
    """Threads that take numbers from one counter; each has its own connection."""

    def __init__(self, target: Target, *, operation: str, numbers: Iterator[int], count: int, pause: float) -> None:
        self._target = target
        self._send = {"create": self._create, "update": self._update, "delete": self._delete}[operation]
        self._numbers = numbers
        self._count = count
        self._pause = pause
        self._lock = threading.Lock()
        self.answered: dict[str, int] = {}
        self.failures: list[str] = []

    def work(self) -> None:
        """Send until the numbers are used up or a request has failed."""
        connection = Connection(self._target)
        while not self.failures:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                break
            name = object_name(number % self._count)
            try:
                status, content = self._send(connection, name, number // self._count)
            except OSError as error:
                self.failures.append(f"{name}: {error!r}")
                break
            self.answered[name] = connection.answered_at
            if status >= 400:
                self.failures.append(f"{name}: {status} {content[:500]!r}")
            if self._pause:
                time.sleep(self._pause)
        connection.close()

    @staticmethod
    def _create(connection: Connection, name: str, _round: int) -> tuple[int, bytes]:
        return connection.request("POST", COLLECTION, body=json.dumps(build_object(name)).encode())

    @staticmethod
    def _update(connection: Connection, name: str, round: int) -> tuple[int, bytes]:
        body = json.dumps({"spec": {"field": f"value-{time.monotonic_ns()}-{round}"}}).encode()
        return connection.request("PATCH", f"{COLLECTION}/{name}", body=body, content_type=MERGE_PATCH)

    @staticmethod
    def _delete(connection: Connection, name: str, _round: int) -> tuple[int, bytes]:
        return connection.request("DELETE", f"{COLLECTION}/{name}")


def main() -> int:
    """Send the load that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("kubeconfig", type=pathlib.Path)
    parser.add_argument("operation", choices=["create", "update", "delete"])
    parser.add_argument("count", type=int)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    numbers = itertools.islice(itertools.count(), options.count * options.repeats)
    generator = _Generator(
        load_target(options.kubeconfig),
        operation=options.operation,
        numbers=numbers,
        count=options.count,
        pause=options.pause,
    )
    threads = [threading.Thread(target=generator.work) for _ in range(options.concurrency)]
    began = time.monotonic_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if generator.failures:
        print(*generator.failures, sep="\n", file=sys.stderr)
        return 1
    result = LoadResult(began=began, ended=time.monotonic_ns(), answered=generator.answered)
    print(json.dumps(dataclasses.asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
