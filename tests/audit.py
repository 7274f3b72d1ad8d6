"""Known vulnerabilities of what the image installs: ``python -m tests.audit``, with pip-audit installed.

It exits with 0 if none is known, 1 if one is, and 2 if nobody could be asked: pip-audit says 1 for both.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

ROOT: Final = pathlib.Path(__file__).parents[1]
REQUIREMENTS: Final = ROOT / "deploy" / "requirements.txt"
REPORT: Final = ROOT / "build" / "audit.json"


def judge(report: str | None, output: str) -> tuple[int, str]:
    """Return the exit code and what to say of the report of pip-audit, which is None if there is none."""
    if report is None:
        last = output.strip().splitlines()[-1:] or ["it said nothing"]
        return 2, (
            "The database of vulnerabilities could not be asked for all packages, so nothing is known of them. Run this"
            f" where https://pypi.org is reachable, not only a mirror of its files. pip-audit: {last[0]}"
        )
    packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'none'}"
        for package in packages
        for known in package.get("vulns", [])
    ]
    if found:
        return 1, "\n".join(["Known vulnerabilities:", *found])
    return 0, f"No vulnerability is known of {len(packages)} packages."


def main(command: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> int:
    """Ask the database, and return the exit code."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    options = ["--strict", "--disable-pip", "--require-hashes", f"--requirement={REQUIREMENTS}"]
    options += ["--progress-spinner=off", "--format=json", f"--output={REPORT}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    report = REPORT.read_text() if REPORT.exists() else None
    code, text = judge(report, done.stdout + done.stderr)
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
