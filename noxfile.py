"""The checks of the project, one session for each question. `nox` runs those of each day, `nox -s all` all of them.

``nox -l`` lists them; ``nox -s tests-3.11 -- tests/kube -k retry`` passes arguments on. Installing with uv is faster:
``NOX_DEFAULT_VENV_BACKEND=uv nox``.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tomllib

import nox

HERE = pathlib.Path(__file__).parent
RELEASE_TOOLS = ["cyclonedx-bom>=7", "pip-audit>=2.10"]
# One worker more than there are processors, up to a limit: some tests wait for processes and sockets.
PARALLEL = [f"--numprocesses={min(4, (os.cpu_count() or 1) + 1)}", "--dist=loadfile"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]

nox.needs_version = ">=2025.5.1"
# One Python is enough to work: that of nox, if it is one of these.
_CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
nox.options.sessions = [
    "lint",
    "types",
    "layers",
    f"tests-{_CURRENT if _CURRENT in PYTHONS else PYTHONS[0]}",
    "examples",
]
nox.options.error_on_missing_interpreters = False  # "tested on those that are found"


def show_pyenv_pythons() -> None:
    """Let the shims of pyenv find each wanted Python that it has, not only the one that is switched on."""
    if "PYENV_VERSION" in os.environ:
        return
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = [next(iter(sorted(versions.glob(f"{python}.*"), reverse=True)), None) for python in PYTHONS]
    if any(found):
        os.environ["PYENV_VERSION"] = ":".join(path.name for path in found if path is not None) + ":system"


show_pyenv_pythons()
# What is compiled is kept, wherever it runs: compiling the tests takes three times as long as importing them, and they
# start hundreds of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@nox.session(name="all", python=False)
def everything(session: nox.Session) -> None:
    """All that needs nothing but Python, on each Python that is found; e2e also needs $KUBEBUILDER_ASSETS."""
    tests = [f"tests-{python}" for python in PYTHONS]
    for name in ["lint", "types", "pyright", "layers", *tests, "clients", "examples", "docs", "package", "e2e"]:
        session.notify(name)


@nox.session
def lint(session: nox.Session) -> None:
    """Is it formatted and free of the usual mistakes?"""
    session.install("ruff>=0.14")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Do the types hold, in the package, in the tests, in the examples and in a new project?"""
    session.install("-e", ".[dev]")
    session.run("mypy")
    root = pathlib.Path(session.create_tmp()).resolve()
    shutil.rmtree(root / "examples", ignore_errors=True)
    (root / "examples").mkdir()
    for example in [*HERE.glob("examples/*/*.py"), *HERE.glob("deploy/operator/*.py")]:
        # Nearly all are named `main`: copies with names of their own are checked in one run.
        name = "_".join(example.relative_to(HERE).parts).replace("-", "_")
        shutil.copyfile(example, root / "examples" / name)
    session.run("mypy", *map(str, sorted((root / "examples").glob("*.py"))))
    cache = {"MYPY_CACHE_DIR": str(root / "cache")}  # both have the same options
    with session.chdir("examples/21-everything"):  # a package, with its own configuration
        session.run("mypy", env=cache)
    shutil.rmtree(root / "new-operator", ignore_errors=True)
    with session.chdir(root):
        session.run("trioperator", "new", "new-operator")
    with session.chdir(root / "new-operator"):  # with its own configuration, which is strict
        session.run("mypy", env=cache)
        session.run("ruff", "check")
        session.run("ruff", "format", "--check")


@nox.session
def pyright(session: nox.Session) -> None:
    """Does pyright infer the types of typed kinds, as mypy does?"""
    session.install("-e", ".[test]", "basedpyright>=1.40")  # brings its Node.js in a wheel: 280 MiB in all
    session.run("python", "-m", "pytest", "tests/test_pyright.py", *session.posargs)


@nox.session
def layers(session: nox.Session) -> None:
    """Do imports look down only?"""
    session.install("-e", ".", "import-linter>=2.13")
    session.run("lint-imports", "--no-logo")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Does it do what the tests say? Unit, property, virtual-time and process tests."""
    session.install("-e", ".[test]")
    # Sockets, threads and processes take part: what fails is asked once more, and the summary tells ("1 rerun").
    default = ["tests", "--ignore=tests/examples", "-m", "not e2e", "--reruns=1", "-raR"]
    session.run("python", "-m", "pytest", *(session.posargs or [*default, *PARALLEL]))


@nox.session(python=PYTHONS[0], venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Do the oldest versions of the dependencies that pyproject.toml allows do? Not part of `.ci/run`."""
    session.install("-e", ".[test]", "--resolution=lowest-direct")
    tests = ["--ignore=tests/apiserver", "--ignore=tests/examples", "--ignore=tests/lives", "-m", "not e2e"]
    session.run("python", "-m", "pytest", *(session.posargs or ["tests", *tests, "--reruns=1", "-raR"]))


@nox.session
def clients(session: nox.Session) -> None:
    """Do others' client libraries, and Kopf, go together with the helpers and with the embedded API server?"""
    libraries = ["aiohttp", "kopf", "kr8s", "kubernetes", "kubernetes_asyncio", "lightkube", "pykube-ng"]
    session.install("-e", ".[test]", *libraries, "fastapi")
    tests = [
        "tests/apiserver/test_clients.py",
        "tests/both/test_styles.py",
        "tests/both/test_walkthrough.py",
        "tests/client/test_connection.py",
        "tests/client/test_library_logins.py",
        "tests/helpers",
        "tests/kopf",
        "tests/test_embedding.py",
        "tests/testing/test_library_clients.py",
        "tests/world",
    ]
    session.run("python", "-m", "pytest", *tests, "--reruns=1", "-raR", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Do the examples show what their pages say?"""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", "tests/examples", "--reruns=1", "-raR", *PARALLEL, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Is the documentation whole? The site, in build/site, with warnings as errors. `-- linkcheck` tries its links."""
    session.install("-e", ".[docs]")
    builder = session.posargs[0] if session.posargs else "html"
    strict = ["--fail-on-warning", "--keep-going", "--fresh-env", "--quiet"]
    target = "build/site" if builder == "html" else f"build/{builder}"
    session.run("sphinx-build", *strict, f"--builder={builder}", "--conf-dir=docs/site", ".", target)


@nox.session
def e2e(session: nox.Session) -> None:
    """Does it work with a real etcd and kube-apiserver?"""
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        session.skip(
            "set KUBEBUILDER_ASSETS to the folder with etcd, kube-apiserver, kube-controller-manager and kubectl"
            " (`setup-envtest use -p path` downloads them)"
        )
    session.install("-e", ".[test]", "kubernetes")
    # Another system of many processes takes part: what fails is asked once more, and the summary tells ("1 rerun").
    session.run("python", "-m", "pytest", "-m", "e2e", "--reruns=1", "-raR", *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """Does the package build, and does its wheel install and run where nothing else is?"""
    session.install("build")
    dist = pathlib.Path(session.create_tmp()).resolve() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    session.run("python", "-m", "build", f"--outdir={dist}")  # the wheel is built from the source distribution
    session.run("python", "-m", "tests.package", str(dist))


@nox.session
def lock(session: nox.Session) -> None:
    """Lock the dependencies of the image again; ``-- --upgrade`` to newer versions. Not part of ``all``."""
    session.install("uv")
    image = ["--python-version=3.13", "--python-platform=linux", "--generate-hashes", "--no-header", "--quiet"]
    session.run(
        "uv",
        "pip",
        "compile",
        *image,
        "--extra=live-view",
        "pyproject.toml",
        "-o=deploy/requirements.txt",
        *session.posargs,
    )
    with (HERE / "pyproject.toml").open("rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    source = pathlib.Path(session.create_tmp()) / "build.in"
    source.write_text("\n".join(requires))
    target = HERE / "deploy" / "build-requirements.txt"
    session.run("uv", "pip", "compile", *image, str(source), f"-o={target}", "--no-annotate", *session.posargs)
    source.write_text("\n".join(RELEASE_TOOLS))
    target = HERE / "deploy" / "release-requirements.txt"
    session.run("uv", "pip", "compile", *image, str(source), f"-o={target}", "--no-annotate", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Has anything that the image installs a known vulnerability? Not part of ``all``: asks a public database.

    It fails with the code 1 if there is one, and with 2 if the database cannot be asked. It also writes what the image
    installs to build/sbom.json, as a CycloneDX bill of materials.
    """
    session.install(*RELEASE_TOOLS)
    (HERE / "build").mkdir(exist_ok=True)
    bill = ["--output-reproducible", "--output-file=build/sbom.json"]
    session.run("cyclonedx-py", "requirements", *bill, "deploy/requirements.txt")
    session.run("python", "-m", "tests.audit")


@nox.session
def explore(session: nox.Session) -> None:
    """Does exploring find planted defects, and nothing wrong with correct operators? Not part of a plain ``nox``."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.explore", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Does the embedded API server withstand random attacks? `nox -s fuzz -- --seconds 600 --seed 1`"""
    session.install("-e", ".[test]")
    session.run("python", "-X", "faulthandler", "-m", "tests.fuzz", "apiserver", *session.posargs)


@nox.session
def kopf(session: nox.Session) -> None:
    """Do Kopf's own examples run, unchanged and natively? Those in $KOPF_REPOSITORY; without it, it is cloned."""
    session.install("-e", ".[test]")
    repository = os.environ.get("KOPF_REPOSITORY") or f"{session.create_tmp()}/kopf"
    if not os.path.exists(repository):
        session.run("git", "clone", "--depth=1", "https://github.com/nolar/kopf", repository, external=True)
    for options in ([], ["--native"]):
        session.run("python", "-m", "tests.kopf.examples", repository, *session.posargs, *options)


@nox.session
def world(session: nox.Session) -> None:
    """Do public operators do the same as under Kopf? Those in $WORLD_REPOSITORIES; without it, they are cloned.

    What they import is installed from package registries. ``nox -s world -- clustersecret poolboy`` plays some;
    ``-- suite`` runs Kopf's own tests of its public behaviour, ``-- dask`` those of dask-kubernetes, and
    ``-- withdrawing`` changes two fields of ClusterSecrets at once, ``-- costs`` measures. ``-- --real poolboy`` plays
    on a control plane of the programs in $KUBEBUILDER_ASSETS. All of it takes an hour: ``-R -- --resume`` goes on with
    an interrupted run. Not part of a plain ``nox``.
    """
    env = {"UV_COMPILE_BYTECODE": "1"}  # as pip does: client libraries take seconds to compile, in each process
    session.install("-e", ".[test]", "kopf==1.45.2", "pytest-asyncio", "pytest-mock", "pytest-timeout", env=env)
    session.run_install("python", "-m", "tests.world", "--requirements")
    session.install("-r", "build/world/requirements.txt", env=env)
    for file in pathlib.Path("build/world/apart").glob("*.txt"):
        session.install("--target", str(file.with_suffix("")), "-r", str(file), env=env)
    part, *others = session.posargs or [""]
    if part in ("suite", "dask", "withdrawing", "costs"):
        session.run("python", "-m", f"tests.world.{part}", *others)
    else:
        session.run("python", "-m", "tests.world", *session.posargs)


@nox.session
def foreign(session: nox.Session) -> None:
    """Do test suites that others wrote pass on the embedded API server? Those of controller-runtime, and of clients.

    They come from package registries; Go and Rust are needed. With $KUBEBUILDER_ASSETS, only what passes on the real
    server must pass here. ``nox -s foreign -- client cache`` runs some. Not part of a plain ``nox``.
    """
    clients = ["kr8s", "kubernetes>=37", "kubernetes_asyncio", "lightkube", "pykube-ng"]
    session.install("-e", ".[test]", *clients, "kubernetes-validate", "pytest-asyncio", "pytest-timeout")
    session.run("python", "-m", "tests.foreign", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """How much does it cost, next to Kopf on the same API server in the same run?"""
    session.install(".")
    session.run("python", "-m", "tests.bench", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Does it hold? An operator amid faults, killed again and again; its ports under attack; elections; lives.

    ``TRIOPERATOR_SECONDS=28800 nox -s soak`` lives for a night; otherwise, the last hour is for lives.
    """
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.soak", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "tests.soak", "ports")
        seeds = {"TRIOPERATOR_SEEDS": "300"}
        session.run("python", "-m", "pytest", "tests/coordination", "-k", "whatever_happens", env=seeds)
        session.run("python", "-m", "pytest", "tests/runtime/test_chaos.py", env={"TRIOPERATOR_SEEDS": "60"})
        session.run("python", "-m", "tests.lives", "--seconds", os.environ.get("TRIOPERATOR_SECONDS", "3600"))
