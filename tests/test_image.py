"""The image of `deploy/Dockerfile`: what is locked, copied and run. Docker is not needed for these tests."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dockerfile import Dockerfile, is_ignored, parse_arguments

ROOT = pathlib.Path(__file__).parents[1]
DOCKERFILE = Dockerfile.parse((ROOT / "deploy/Dockerfile").read_text())
IGNORED = (ROOT / "deploy/Dockerfile.dockerignore").read_text()
#: What requirements are evaluated for, wherever the tests run.
IMAGE = {"python_version": "3.13", "python_full_version": "3.13.0", "sys_platform": "linux", "platform_system": "Linux"}


# The locks.


def read_lock(name: str) -> dict[str, tuple[str, int]]:
    """Read the versions of a lock file, and how many hashes each has."""
    text = (ROOT / "deploy" / f"{name}.txt").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    found = [re.fullmatch(r"([a-z0-9-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line) for line in lines]
    assert all(found), lines
    return {match[1]: (match[2], match[3].count("--hash")) for match in found if match}


def read_direct(name: str) -> set[str]:
    """Read which of the locked packages the project itself requires, by the annotations."""
    entries = re.split(r"^(?=[a-z])", (ROOT / "deploy" / f"{name}.txt").read_text(), flags=re.MULTILINE)
    return {entry.partition("==")[0] for entry in entries if "trioperator (pyproject.toml)" in entry}


@pytest.mark.parametrize("name", ["requirements", "build-requirements"])
def test_the_lock_fits_the_dependencies_of_the_project(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"]
    if name == "requirements":
        wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["live-view"]]
    requirements = [Requirement(text) for text in wanted]
    lock = read_lock(name)
    for requirement in requirements:
        version, _ = lock[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked as {version}: run `nox -s lock`"
    if name == "requirements":
        names = {str(canonicalize_name(requirement.name)) for requirement in requirements}
        assert read_direct(name) == names, "run `nox -s lock`"


def test_what_a_locked_package_requires_is_locked_too() -> None:
    """The versions that are installed here are compared; `nox -s package` compares all."""
    lock = read_lock("requirements")
    missing = []
    for distribution in importlib.metadata.distributions():
        version, _ = lock.get(canonicalize_name(distribution.name), ("", 0))
        if distribution.version == version:
            for requirement in map(Requirement, distribution.requires or ()):
                if requirement.marker is None or requirement.marker.evaluate({**IMAGE, "extra": ""}):
                    locked, _ = lock.get(canonicalize_name(requirement.name), ("0", 0))
                    if not requirement.specifier.contains(locked) or locked == "0":
                        missing.append(f"{distribution.name}: {requirement}")
    assert missing == []


# The Dockerfile.


def test_the_image_installs_what_is_locked_and_nothing_else() -> None:
    commands = [command for run in DOCKERFILE.select("RUN") for command in run.split("&&")]
    installs = [command for command in commands if "-m pip" in command]
    assert len(installs) == 4
    for install in installs:
        assert ("--require-hashes" in install and "--only-binary :all:" in install) or "--no-index" in install, install
        # A Python of a distribution allows no changes of what it has installed itself.
        assert re.search(r"--python /(venv|build)/bin/python ", install), install


def test_the_base_is_pinned_and_nothing_of_the_build_gets_into_the_image_but_what_is_installed() -> None:
    [base] = DOCKERFILE.select("ARG")
    assert re.fullmatch(r"BASE=python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert DOCKERFILE.select("FROM") == ["${BASE} AS build", "${BASE}"]
    assert DOCKERFILE.final.select("COPY") == ["--from=build /venv /venv", "deploy/operator ./"]
    assert DOCKERFILE.final.select("RUN") == []


def test_what_the_image_is_built_from_exists_and_all_else_is_ignored() -> None:
    for source in DOCKERFILE.sources:
        paths = [path for path in [ROOT / source, *(ROOT / source).rglob("*")] if path.is_file()]
        files = [path.relative_to(ROOT).as_posix() for path in paths]
        assert files, source
        assert [file for file in files if is_ignored(file, IGNORED) is not ("__pycache__" in file)] == []
    kept = {path.name for path in ROOT.iterdir() if not is_ignored(path.name, IGNORED)}
    assert kept == {source for source in DOCKERFILE.sources if "/" not in source}
    kept = {path.name for path in (ROOT / "deploy").iterdir() if not is_ignored(f"deploy/{path.name}", IGNORED)}
    assert kept == {source.partition("/")[2] for source in DOCKERFILE.sources if "/" in source}


def test_the_image_runs_the_operator_as_the_deployment_does() -> None:
    pod = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert DOCKERFILE.final.read_list("CMD") == container["args"]
    user = pod["securityContext"]
    assert DOCKERFILE.final.select("USER") == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    program, *arguments = [*DOCKERFILE.final.read_list("ENTRYPOINT"), *DOCKERFILE.final.read_list("CMD")]
    assert program in {f"/venv/bin/{name}" for name in scripts}
    assert arguments.pop(0) == "run"
    options = parse_arguments(arguments)
    assert [str(path) for path in options["files"]] == ["main.py"]  # type: ignore[attr-defined]  # a list
    assert (ROOT / "deploy/operator/main.py").is_file()
    assert options["clusterwide"] is options["standalone"] is True
