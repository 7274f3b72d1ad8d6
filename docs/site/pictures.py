"""Make the pictures of README: `python docs/site/pictures.py`, after `nox -s docs`.

Terminals are what the commands of the quickstart print, as SVG; times are the documentation's. The page of the
site is shown by Chromium, whose path may be in $CHROMIUM. Needs what `pip install -e .` brings.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.text import Text

ROOT = pathlib.Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()
EXPLORING = (ROOT / "docs" / "exploring.md").read_text()
#: A file for `trioperator check`, with mistakes.
MISTAKES = """import asyncio

import trioperator


@trioperator.on.create("greetings")
async def greet(spec, patch, loger):
    await asyncio.sleep(1)
    patch.status["message"] = f"Hello, {spec['to']}!"


@trioperator.on.delete("greeting.example.org")
def say_goodbye(name): ...
"""
#: Rich's template without its fonts from elsewhere.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def write_files(folder: pathlib.Path) -> None:
    """Write the files of the quickstart."""
    pattern = r"`([a-z]+\.[a-z]+)`[^`]*(?:`Greeting`)?:\n\n(?:<!--.*?-->\n)?```[a-z]+\n(.*?)^```$"
    for name, text in re.findall(pattern, QUICKSTART, re.DOTALL | re.MULTILINE):
        (folder / name).write_text(text)
    (folder / "wrong.py").write_text(MISTAKES)


def run(folder: pathlib.Path, *words: str, until: str = "") -> str:
    """Return what a command prints; it is stopped when *until* is in its output, if that is given."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))}
    environment = {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    log = folder / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "trioperator", *words]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if until and until in log.read_text():
            process.send_signal(signal.SIGINT)
            until = ""
        time.sleep(0.1)
    process.kill()
    process.wait()
    return log.read_text()


def tidy(text: str) -> str:
    """Replace what differs from run to run."""
    text = re.sub(r"^\[[\d-]+ [\d:,]+\]", "[2026-01-31 12:00:00,000]", text, flags=re.MULTILINE)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:34567", text)
    return re.sub(r"/\S*/trioperator-\w+/", "/tmp/trioperator-x1y2z3/", text)


def draw(name: str, command: str, output: str) -> None:
    """Write a terminal with a command and its output as SVG."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=140, file=nowhere)
        console.print(Text(f"$ {command}", style="bold"))
        for line in tidy(output).splitlines():
            style = "red" if "ERROR" in line else "yellow" if "WARNING" in line else ""
            console.print(Text(line, style=style))
    svg = _FONTS.sub("", console.export_svg(title="", unique_id=name))
    (IMAGES / f"{name}.svg").write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()))


def photograph(page: str, name: str) -> None:
    """Write a page of the built site as PNG."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    site = ROOT / "build" / "site" / page
    if found is None or not site.exists():
        print(f"There is no Chromium, or no {site}: {name} stays as it is.")
        return
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,800"]
    subprocess.run([found, *options, f"--screenshot={IMAGES / name}", site.as_uri()], check=True, capture_output=True)


def draw_exploration(folder: pathlib.Path) -> None:
    """Draw what is found of the operator of the page about exploring."""
    for name, text in re.findall(
        r"`([a-z]+\.[a-z]+)`:\n\n(?:<!--.*?-->\n)?```[a-z]+\n(.*?)^```$", EXPLORING, re.DOTALL | re.M
    ):
        (folder / name).write_text(text)
    words = ["explore", "app.py", "--crds", "crd.yaml", "--sequences", "20"]
    draw("explore", f"trioperator {' '.join(words)}", re.sub(r"in \d+\.\d s", "in 8.5 s", run(folder, *words)))


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_files(folder)
        words = ["run", "--embedded", "--apply", "crd.yaml", "--apply", "hello.yaml", "main.py"]
        draw("start", f"trioperator {' '.join(words)}", run(folder, *words, until="Creation is processed"))
        words = ["check", "wrong.py"]
        draw("check", f"trioperator {' '.join(words)}", run(folder, *words))
        draw_exploration(folder)
    photograph("docs/tutorial.html", "site.png")


if __name__ == "__main__":
    main()
