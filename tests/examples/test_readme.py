"""The first command of the README does what the README says."""

from __future__ import annotations

import functools
import re
import shlex
import signal
import subprocess
import sys

import trio

from tests.docs.pages import ROOT, read, without_times


async def test_the_first_command_shows_the_object_handled_and_is_ended_by_ctrl_c_with_code_0() -> None:
    readme = read("README.md")
    match = re.search(r"^\$ python -m pip install \. && trioperator (.+)$", readme, re.MULTILINE)
    assert match is not None
    command = [sys.executable, "-m", "trioperator", *shlex.split(match[1])]
    expected = without_times(readme.split("```text\n")[1].split("```")[0]).splitlines()
    assert expected

    output = b""
    async with trio.open_nursery() as nursery:
        run = functools.partial(
            trio.run_process, command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        with trio.fail_after(120):
            while expected[-1].encode() not in output:
                chunk = await process.stdout.receive_some()
                assert chunk, output.decode()
                output += chunk
            process.send_signal(signal.SIGINT)
            async for chunk in process.stdout:
                output += chunk
    lines = without_times(output.decode())
    assert [line for line in expected if line not in lines.splitlines()] == []
    assert "Traceback" not in lines
    assert process.returncode == 0
