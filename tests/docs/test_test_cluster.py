"""The section about the admin endpoint in docs/test-cluster.md, command by command, with curl."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.controlplane import free_ports
from tests.docs.pages import read_commands

COMMANDS = read_commands("docs/test-cluster.md")
NAMES = [command.split()[0] for command, _ in COMMANDS]
# From the file of the token to the last command of the section.
SECTION = COMMANDS[NAMES.index("export") : len(NAMES) - NAMES[::-1].index("admin")]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[^\"]+")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_print_what_the_page_shows(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    token, serve, *commands = (command.replace("8443", str(port)) for command, _ in SECTION)
    script = [token, serve, "server=$!", "trap 'kill $server' EXIT"]
    ready = f"curl -sk --retry 20 --retry-connrefused --retry-max-time 60 https://127.0.0.1:{port}/readyz >/dev/null"
    script += [ready, *(f"{command}\necho; echo ---" for command in commands)]
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    answers = [_TIME.sub("now", part.strip()) for part in found.partition("Ctrl-C stops it.\n")[2].split("---\n")]
    assert answers[:-1] == [_TIME.sub("now", output.strip()) for _, output in SECTION[2:]]
