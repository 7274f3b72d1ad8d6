"""Operators in asyncio programs: ``await kopf.operator()`` on asyncio, in processes of their own."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from tests.processes.conftest import ROOT, environment

PROGRAM = """
import asyncio, concurrent.futures, sys, threading
import trioperator.kopf
trioperator.kopf.install()
import kopf
from trioperator.apiserver import Cluster
from trioperator.kopf.bridge import current_loop

lock = asyncio.Lock()
cluster = Cluster(seed=0)
seen = []

@kopf.on.create("configmaps")
async def fn(**_):
    async with lock:
        await asyncio.sleep(0.01)
    async def sub(**_):
        await asyncio.sleep(0)
        seen.append("sub")
    await kopf.execute(fns={"sub": sub})
    seen.append("loop" if asyncio.get_running_loop() is loop else "another loop")

@kopf.daemon("configmaps", cancellation_timeout=60)
async def deaf(**_):
    seen.append("deaf")
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise

@kopf.daemon("configmaps")
async def daemon(stopped, **_):
    seen.append("waiting")
    await asyncio.wait_for(stopped.wait(), 100)
    seen.append("stopped")

@kopf.on.cleanup()
async def clean(**_):
    await asyncio.sleep(0)
    seen.append("cleaned")

def options():
    return dict(connection=kopf.ConnectionInfo(server="http://cluster"), transport=cluster.transport(), standalone=True)

async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)

async def create():
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})

async def main():
    global loop
    loop = asyncio.get_running_loop()
    await asyncio.wait_for(check(), 60)
    print("fine")

"""
CHECKS = {
    "flags": """
async def check():
    @kopf.on.startup()
    async def start(**_):
        await current_loop.get().start(create)
    await check_flags(asyncio.Event(), asyncio.Event())
    await check_flags(threading.Event(), threading.Event())
    await check_flags(loop.create_future(), loop.create_future())

async def check_flags(stop, ready):
    global cluster
    cluster = Cluster(seed=0)
    seen.clear()
    task = asyncio.create_task(kopf.operator(stop_flag=stop, ready_flag=ready, **options()))
    await until(lambda: {"loop", "deaf", "waiting"} <= set(seen))
    assert ready.is_set() if hasattr(ready, "is_set") else ready.done()
    if hasattr(stop, "set"):
        stop.set()
    else:
        stop.set_result(None)
    await task
    assert "sub" in seen and sorted(seen[-3:-1]) == ["cancelled", "stopped"] and seen[-1] == "cleaned", seen
""",
    "cancellation": """
async def check():
    ready = asyncio.Event()
    task = asyncio.create_task(kopf.operator(ready_flag=ready, **options()))
    await ready.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        seen.append("cancelled")
    assert seen == ["cleaned", "cancelled"], seen
    seen.clear()
    @kopf.on.startup()
    async def fail(**_):
        raise kopf.PermanentError("no way")
    try:
        await kopf.operator(**options())
    except trioperator.ActivityError as error:
        assert "no way" in repr(error), error
    else:
        raise AssertionError("It has started.")
""",
    "tasks": """
async def check():
    global cluster
    @kopf.on.startup()
    async def start(**_):
        await current_loop.get().start(create)
    other = asyncio.create_task(asyncio.sleep(1000))
    tasks = await kopf.spawn_tasks(**options())
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=[other]))
    await until(lambda: {"loop", "waiting"} <= set(seen))
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and all(task.cancelled() for task in tasks), tasks
    assert seen[-1] == "cleaned" and not other.done(), seen
    seen.clear()
    cluster = Cluster(seed=0)
    stop = asyncio.Event()
    tasks = await kopf.spawn_tasks(stop_flag=stop, **options())
    stop.set()
    await kopf.run_tasks(tasks)
    assert seen[-1] == "cleaned", seen
    cluster = Cluster(seed=0)
    @kopf.on.startup()
    async def fail(**_):
        raise kopf.PermanentError("no way")
    tasks = await kopf.spawn_tasks(**options())
    try:
        await kopf.run_tasks(tasks)
    except trioperator.ActivityError as error:
        assert "no way" in repr(error), error
    else:
        raise AssertionError("It has started.")
    other.cancel()
""",
    "several": """
from trioperator.kopf.guest import run_as_guest

async def check():
    stops, tasks, called = [asyncio.Event() for _ in range(4)], [], []
    def start(i):
        registry, ready = kopf.OperatorRegistry(), asyncio.Event()
        @kopf.on.create("configmaps", registry=registry)
        async def handle(name, **_):
            await asyncio.sleep(0)
            called.append((i, name))
        @kopf.on.startup(registry=registry)
        async def configure(settings, **_):
            settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=f"op{i}.dev")
        operate = kopf.operator(registry=registry, stop_flag=stops[i], ready_flag=ready, **options())
        tasks.append(asyncio.create_task(operate))
        return ready.wait()
    async def handle(name, operators):
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await run_as_guest(lambda: cluster.create(manifest))
        await until(lambda: {(i, name) for i in operators} <= set(called))
    await asyncio.gather(start(0), start(1))
    await handle("both", [0, 1])
    stops[0].set()
    await tasks[0]
    await handle("second", [1])
    tasks[1].cancel()  # Trio ends with it, and starts again for the next operator
    ready = start(2)
    await asyncio.wait([tasks[1]])
    assert tasks[1].cancelled(), tasks
    await asyncio.gather(ready, start(3))
    await handle("third", [2, 3])
    for stop in stops:
        stop.set()
    await asyncio.gather(*tasks[2:])
    assert (0, "second") not in called and (1, "third") not in called, called
""",
    "server": """
async def check():
    fns = []
    class Server(kopf.WebhookServer):
        async def __aenter__(self):
            await asyncio.sleep(0)
        async def __aexit__(self, *_):
            await asyncio.sleep(0.01)
            seen.append("exited")
        async def __call__(self, fn):
            fns.append(fn)
            async for address in super().__call__(fn):
                yield address
    @kopf.on.startup()
    async def configure(settings, **_):
        settings.admission.server = Server(insecure=True)
    @kopf.on.validate("configmaps")
    async def check(warnings, **_):
        await asyncio.sleep(0.01)
        warnings.append("checked")
    ready = asyncio.Event()
    task = asyncio.create_task(kopf.operator(ready_flag=ready, **options()))
    await until(lambda: ready.is_set() or task.done())
    request = {"uid": "1", "operation": "CREATE", "object": {}, "userInfo": {}}
    request["resource"] = {"group": "", "version": "v1", "resource": "configmaps"}
    request["kind"] = {"group": "", "version": "v1", "kind": "ConfigMap"}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    seen.append((await fns[0](review))["response"]["warnings"])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task
    assert seen == [["checked"], "exited", "cleaned"], seen
""",
}
GIVEN_LOOP = """
import os, signal
loop = asyncio.new_event_loop()

@kopf.on.startup()
async def start(**_):
    await current_loop.get().start(create)

@kopf.timer("configmaps", interval=0.01)
async def stop(**_):
    if {"loop", "waiting"} <= set(seen) and "signalled" not in seen:  # a second signal would not wait for the end
        seen.append("signalled")
        os.kill(os.getpid(), signal.SIGTERM)

kopf.run(loop=loop, **options())
assert "another loop" not in seen and seen[-1] == "cleaned", seen
loop.close()
print("fine")
"""


def run_program(home: pathlib.Path, check: str, *, last: str = "asyncio.run(main())") -> None:
    program = home / "program.py"
    program.write_text(f"{PROGRAM}{check}\n{last}\n")
    command, env = [sys.executable, str(program)], environment(home)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_an_operator_runs_in_the_loop_that_awaits_it_and_takes_its_flags(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, CHECKS["flags"])


def test_cancellation_and_errors_pass_between_the_loops(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, CHECKS["cancellation"])


def test_an_operator_runs_as_tasks_that_are_spawned_and_run(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, CHECKS["tasks"])


def test_several_operators_run_in_one_loop(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, CHECKS["several"])


def test_run_takes_the_asyncio_loop_that_handlers_run_in(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, GIVEN_LOOP, last="")


def test_custom_webhook_servers_run_in_the_loop(tmp_path: pathlib.Path) -> None:
    run_program(tmp_path, CHECKS["server"])
