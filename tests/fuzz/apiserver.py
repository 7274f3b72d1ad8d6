"""Random requests to the embedded API server, as bytes on a connection, and restarts from its data file."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import multiprocessing
import pathlib
import random
import re
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import trio
import trio.testing
import yaml

from tests.apiserver.conftest import SHAPE, definition
from tests.apiserver.kinds import FIELDS, KINDS
from tests.fuzz import crafted
from tests.fuzz.crafted import Scenario
from trioperator.apiserver import Cluster, open_cluster
from trioperator.apiserver.model.user import ADMIN
from trioperator.apiserver.serving.http import serve_stream

_SECONDS: Final = 1.0  # of CPU time for one request
_MEBIBYTES: Final = 300
_CRAFTED: Final = 0.1  # of the requests are followed by a crafted scenario
_HEAD: Final = 70_000  # bytes of a response in which its head ends
_LENGTH: Final = re.compile(rb"Content-Length: (\d+)")
_PROCESS_SECONDS: Final = 300  # of CPU time, for one round
_PROCESS_BYTES: Final = 4 * 1024**3
_DONE, _SENDING = "done", "sending"
_TOO_LONG: Final = re.compile(r"[\d.]+ s of CPU time")
_WATCH: Final = 0.05  # seconds until a watch is left
_NUMBERS: Final = ("1e400", "-1e400", "1e-400", "9" * 5000, str(2**63), "-1", "0.1", "NaN", "1E999999999", "-0")
_TEXTS: Final = (
    "", "\0", "a\0b", "\n", "é" * 300, "٣", "2024-01-01T00:00:00Z", "1e999999999999",
    "1.5Gi", "99 * * * *", "a/b", "../..",
    "(a+)+$", "a.{900}c", "*", "true", "v1", "$ref", "{{", "%00", "x" * 70_000, "self.size > 0", "spec..x", "9" * 5000,
)  # fmt: skip
_TYPES: Final = (
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json", "application/json-patch+json",
    "application/apply-patch+yaml", "text/x", "",
)  # fmt: skip
_QUERIES: Final = (
    "", "", "?dryRun=All", "?fieldManager=f&force=true", "?fieldValidation=Strict", "?limit=1", "?continue=x",
    "?resourceVersion=" + "9" * 5000, "?watch=1&timeoutSeconds=1e400", "?labelSelector=a%20in%20(",
    "?fieldSelector=%00",
    "?propagationPolicy=Foreground", "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "?watch=1",
)  # fmt: skip
_ACCEPTS: Final = ("application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "")
_CONTAINERS: Final = [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]
_BASES: Final[tuple[Any, ...]] = (
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": _CONTAINERS}},
    {"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": {"name": "a"}, "spec": {"size": 1, "name": "n"}},
    {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}},
    {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}, "propagationPolicy": "Orphan"},
    [{"op": "copy", "from": "/metadata", "path": "/metadata/labels"}, {"op": "add", "path": "/spec/x", "value": [1]}],
)


def attack(seed: int, *, requests: int) -> list[str]:
    """Attack a server in a process of its own; return what went wrong, also if the process died.

    What took too long counts if it does so twice: on a busy machine, CPU time includes that of others now and then.
    """
    problems = _attack_once(seed, requests)
    if any(_TOO_LONG.match(text) for text in problems):
        again = {_TOO_LONG.sub("", text) for text in _attack_once(seed, requests)}
        problems = [text for text in problems if not _TOO_LONG.match(text) or _TOO_LONG.sub("", text) in again]
    return problems


def _attack_once(seed: int, requests: int) -> list[str]:
    _scenarios()  # the child has them, too
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(seed, requests, theirs))
    process.start()
    theirs.close()
    problems: list[str] = []
    with contextlib.suppress(EOFError):
        while True:
            problems.append(ours.recv())
    process.join()
    last = problems.pop() if problems else "nothing"  # the process announces each request, and that it is done
    if last == _DONE:
        return [text for text in problems if not text.startswith(_SENDING)]
    return [*problems, f"the server died with {process.exitcode} after {last}"]


def _child(seed: int, requests: int, connection: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESS_SECONDS, _PROCESS_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_PROCESS_BYTES, _PROCESS_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_attack, random.Random(seed), pathlib.Path(folder) / "data", requests, connection.send)
    connection.send(_DONE)


async def _attack(rng: random.Random, path: pathlib.Path, requests: int, report: Callable[[str], None]) -> None:
    logging.getLogger("trioperator").addHandler(_ErrorLog(report))
    try:
        async with open_cluster(path, seed=0, log_limit=0) as cluster:
            shape = {"openAPIV3Schema": SHAPE}
            await cluster.apply(definition("shapes", "Shape", schema=shape, subresources={"status": {}}))
            await cluster.apply(definition("frees", "Free"))
            for base in _BASES[:3]:
                await cluster.apply(base)
            for title, sent in _mixed(rng, requests):
                report(f"{_SENDING} {title}")
                if problem := await _send(cluster, sent):
                    report(f"{problem}: {title}: {sent[:2000]!r}")
            before = _content(cluster)
        async with open_cluster(path, seed=0, log_limit=0) as cluster:
            if _content(cluster) != before:
                report("other objects after the restart")
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        place = "".join(traceback.format_exception(error)[-4:])
        report(f"{type(error).__name__} ended the server: {place[:1000]}")


def _mixed(rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield random requests, and crafted ones in between."""
    for sent in _requests(rng, count):
        yield "random", sent
        if rng.random() < _CRAFTED:
            name, scenario = rng.choice(_scenarios())
            yield from ((f"{name} #{at}", sent.as_bytes()) for at, sent in enumerate(scenario()))


@functools.cache
def _scenarios() -> list[tuple[str, Scenario]]:
    return [*crafted.scenarios()]


class _ErrorLog(logging.Handler):
    """Reports what the server logs as an error: it fails to do something after the response, for example."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report the message and the end of the traceback."""
        place = "".join(traceback.format_exception(record.exc_info[1])[-3:]) if record.exc_info else ""
        self._report(f"logged: {record.getMessage()[:500]} {place[:1000]}")


def _content(cluster: Cluster) -> dict[object, bytes]:
    tables = cluster.api.state.store.tables
    return {(name, key): stored.raw for name, table in tables.items() for key, stored in table.objects.items()}


async def _send(cluster: Cluster, sent: bytes) -> str:
    """Send the bytes; return what is wrong with the response, or an empty string."""
    ours, theirs = trio.testing.memory_stream_pair()
    gc.collect()  # of what the test itself has left
    memory, start = _peak(is_reset=True), time.process_time()
    received = bytearray()
    is_watch = sent.startswith(b"GET") and b"watch=1" in sent[:6000]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(functools.partial(serve_stream, cluster.api, theirs, user=ADMIN))
        await ours.send_all(sent)
        await ours.send_eof()
        with trio.move_on_after(_WATCH if is_watch else 60):
            while data := await ours.receive_some():
                received += data
                if _is_complete(received):
                    break
        nursery.cancel_scope.cancel(reason="the response has arrived")
    if (seconds := time.process_time() - start) > _SECONDS:
        return f"{seconds:.1f} s of CPU time"
    if (grown := _peak() - memory) > _MEBIBYTES:
        return f"{grown} MiB"
    if received.startswith(b"HTTP/1.1 5") and b"Internal error occurred" in received:
        return f"500 {bytes(received.partition(b'message')[2][:200])!r}"
    return "" if received.startswith(b"HTTP/1.1 ") or is_watch else "no response"


def _is_complete(received: bytearray) -> bool:
    head, end, _ = bytes(received[:_HEAD]).partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return bool(end) and (b"chunked" not in head if length is None else len(received) >= len(head) + 4 + int(length[1]))


def _peak(*, is_reset: bool = False) -> int:
    """Return the highest resident memory in MiB, since the process began or the last reset."""
    if is_reset:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    (line,) = (line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


# -- requests --------------------------------------------------------------------------------------------------------


def _requests(rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        method = rng.choice(("GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"))
        path = rng.choice(KINDS) + rng.choice(("", "/a", "/a", "/shapes.conformance.dev", "/a/status", "/a/scale"))
        kind = rng.choice(_TYPES[3:]) if method == "PATCH" else rng.choice(_TYPES)
        body = b"" if method == "GET" else _body(rng, kind)
        head = f"{method} {path}{rng.choice(_QUERIES)} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        head += f"Accept: {rng.choice(_ACCEPTS)}\r\n"
        if rng.random() < 0.1:
            trailer = b"0\r\nImpersonate-User: nobody\r\nAuthorization: Bearer x\r\n\r\n"
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            yield head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + trailer
        else:
            yield head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _body(rng: random.Random, kind: str) -> bytes:
    base = rng.choice((*_BASES, _definition(rng)))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        base = _mutated(rng, base)
    if "yaml" in kind and rng.random() < 0.7:
        return _yaml(rng, base)
    text = msgspec.json.encode(base)
    if "protobuf" in kind:
        return b"k8s\0" + rng.randbytes(rng.choice((0, 5, 100)))
    match rng.randrange(12):
        case 0:
            return text[: rng.randrange(len(text) + 1)]
        case 1:
            return text.replace(b'"y"', b"[" * (depth := rng.choice((100, 3000, 100_000))) + b"]" * depth)
        case 2:
            return text.replace(b"1", rng.choice(_NUMBERS).encode())
        case 3:
            return rng.randbytes(50)
        case 4:
            return text.replace(b'"v"', b'"' + b"x" * rng.choice((10**6, 2 * 10**6, 2_900_000)) + b'"')
    return text


def _yaml(rng: random.Random, base: Any) -> bytes:
    match rng.randrange(5):
        case 0:
            lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
            lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 12)]
            return "\n".join(lines).encode()
        case 1:
            return b"a: " + b"[" * rng.choice((100, 30_000, 100_000))
        case 2:
            head = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
            return head + b"data: {1: 2, null: ~, d: 2024-01-01, b: !!binary aa}"
    try:
        return yaml.safe_dump(base, allow_unicode=True).encode()
    except RecursionError:
        return msgspec.json.encode(base)


def _definition(rng: random.Random) -> dict[str, Any]:
    words = (
        "pattern",
        "required",
        "allOf",
        "enum",
        "items",
        "properties",
        "maxLength",
        "multipleOf",
        "default",
        "format",
    )
    schema = {"type": "object", "properties": {"spec": {"type": rng.choice(("object", "string", "array"))}}}
    for word in rng.sample(words, rng.randrange(4)):
        schema["properties"]["spec"][word] = _value(rng)  # type: ignore[index]
    return definition("frees", "Free", schema={"openAPIV3Schema": schema})


def _mutated(rng: random.Random, value: Any) -> Any:
    """Return a copy with one part changed, anywhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice([*value, rng.choice(FIELDS)])
        return {**value, key: _mutated(rng, value.get(key))}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _mutated(rng, value[at]), *value[at + 1 :]]
    return _value(rng)


def _value(rng: random.Random) -> Any:
    choices: tuple[Any, ...] = (
        None,
        True,
        5,
        -1,
        2**63,
        0.1,
        [None],
        [[]],
        {},
        {"a": None},
        [{}],
        [5],
        {"": ""},
        rng.choice(_TEXTS),
    )
    if rng.random() < 0.05:
        nested: Any = []
        for _ in range(rng.choice((50, 400))):
            nested = [nested] if rng.random() < 0.5 else {"a": nested}
        return nested
    return rng.choice((*choices, *_TEXTS[:8]))
