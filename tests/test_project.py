"""The project as a whole: public names, complete pages, and the permissions of the deployment."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import trio
import typer
import yaml

import trioperator
from trioperator import errors, on, settings
from trioperator.apiserver import Cluster

ROOT = pathlib.Path(__file__).parents[1]
DECISIONS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/decisions/*.md"))
GLOBS = ["*.md", "docs/**/*.md", "examples/**/*.md", "deploy/*.md"]
PAGES = sorted(path for glob in GLOBS for path in ROOT.glob(glob))


def read(page: str) -> str:
    return (ROOT / page).read_text()


def modules_with_public_names() -> list[str]:
    paths = [path for path in sorted((ROOT / "trioperator").rglob("*.py")) if "\n__all__ = " in path.read_text()]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", modules_with_public_names())
def test_public_names_exist_and_are_distinct(name: str) -> None:
    module = importlib.import_module(name)
    names = list(module.__all__)
    assert len(names) == len(set(names))
    assert all(hasattr(module, each) for each in names)


def test_all_helpers_for_hierarchies_are_public() -> None:
    from trioperator.helpers import hierarchies

    assert set(hierarchies.__all__) - set(trioperator.__all__) <= {"disown", "unlabel"}


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "trioperator" / "py.typed").exists()


PRIVATE: Final = re.compile(r"\b(?:from|import) trioperator\.(?:\w+\.)*_\w+|\btrioperator\.(?:\w+\.)*_[a-z]\w*")


def pages_and_examples() -> Iterator[pathlib.Path]:
    """Yield the files that show users what to import."""
    yield ROOT / "README.md"
    yield from sorted(path for path in (ROOT / "docs").glob("*.md"))
    for folder in ("deploy", "examples", "trioperator/_tooling/scaffolding/templates"):
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".tmpl"))


def test_pages_examples_and_templates_show_public_rooms_only() -> None:
    shown = [(path, name) for path in pages_and_examples() for name in PRIVATE.findall(path.read_text())]
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in shown if "__" not in name] == []


def test_each_package_has_its_tests() -> None:
    packages = {path.parent.name.lstrip("_") for path in (ROOT / "trioperator").glob("*/__init__.py")}
    tests = ROOT / "tests"
    tested = {path.parent.name for path in tests.rglob("*/test_*.py")}
    tested |= {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    assert packages - tested == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            linked = (page.parent / path) if path else page
            assert linked.exists(), target
            titles = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("decorator", on.__all__)
def test_all_decorators_are_on_the_page_of_handlers(decorator: str) -> None:
    assert f"| `on.{decorator}` |" in read("docs/handlers.md")


@pytest.mark.parametrize("options", [name for name in vars(on) if name.endswith("Options")])
def test_all_options_of_decorators_are_on_the_page_of_handlers(options: str) -> None:
    page = read("docs/handlers.md")
    assert [name for name in getattr(on, options).__annotations__ if f"`{name}`" not in page] == []


def test_all_arguments_are_on_their_page() -> None:
    from trioperator._handling.arguments import cause

    page = read("docs/arguments.md")
    names = cause.ACTIVITY_KWARGS | cause.EVENT_KWARGS | cause.CHANGE_KWARGS
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_all_settings_are_on_their_page() -> None:
    page = read("docs/settings.md")
    tree = settings.OperatorSettings()
    for section in dataclasses.fields(tree):
        _, _, rest = page.partition(f"## `settings.{section.name}`")
        table = rest.split("\n## ")[0]
        fields = dataclasses.fields(getattr(tree, section.name))
        assert [field.name for field in fields if f"| `{field.name}` |" not in table] == []
        assert len(re.findall(r"^\| `", table, re.MULTILINE)) == len(fields)


def test_all_errors_are_on_their_page() -> None:
    page = read("docs/errors.md")
    assert [name for name in errors.__all__ if name not in page] == []


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("run", "docs/command.md"),
        ("check", "docs/command.md"),
        ("new", "docs/command.md"),
        ("cluster", "docs/embedded-cluster.md"),
    ],
)
def test_all_options_of_a_command_are_on_its_page(name: str, page: str) -> None:
    from trioperator.cli.root import app

    page = read(page)
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    options = [name for param in command.params for name in (*param.opts, *param.secondary_opts) if name[:1] == "-"]
    assert options
    assert [name for name in options if f"`{name}" not in page] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/flow.md", "docs/lifetimes.md", *DECISIONS])
def test_pages_about_the_code_name_modules_that_exist(page: str) -> None:
    text = read(page).replace("eviction.py", "writer.py")  # an example
    rooms = "|".join(path.name for path in (ROOT / "trioperator").iterdir() if path.is_dir())
    paths = re.findall(rf"`((?:tests|(?:trioperator/)?(?:{rooms}))/[\w/]*(?:\.py)?)`", text)
    assert paths or page in DECISIONS
    bases = (ROOT, ROOT / "trioperator")
    known = {path for path in paths for base in bases if (base / path).exists() or (base / f"{path}.py").exists()}
    assert [path for path in paths if path not in known] == []


def test_the_answers_of_the_quiz_name_functions_that_exist() -> None:
    answers = read("CONTRIBUTING.md").partition("<summary>Answers</summary>")[2]
    sources = "".join((ROOT / "trioperator" / path).read_text() for path in re.findall(r"`(\w+/[\w/]+\.py)`", answers))
    names = re.findall(r"`(?:\w+\.)?(\w+)\(\)`", answers)
    assert len(names) >= 5
    assert [name for name in names if f"def {name}(" not in sources] == []


def test_all_options_of_operators_are_on_the_page_of_embedding() -> None:
    page = read("docs/embedding.md")
    options = set(inspect.signature(trioperator.operator).parameters) - {"task_status"}
    assert [name for name in sorted(options) if f"`{name}`" not in page] == []


def test_the_help_of_operators_names_all_their_options() -> None:
    options = set(inspect.signature(trioperator.operator).parameters) - {"task_status"}
    text = inspect.getdoc(trioperator.operator) or ""
    assert [name for name in sorted(options) if f"- *{name}*: " not in text] == []


class Rights:
    """Permissions that the ClusterRole of the deployment grants, and those that were used."""

    def __init__(self) -> None:
        documents = yaml.safe_load_all(read("deploy/base/rbac.yaml"))
        rules = next(document for document in documents if document["kind"] == "ClusterRole")["rules"]
        self.granted = {
            (group, resource, verb)
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        self.used: set[tuple[str, str, str]] = set()

    def use(self, method: str, path: str, query: dict[str, Any]) -> None:
        match = re.fullmatch(r"/(?:api|apis/([^/]+))/v1(?:/namespaces/[^/]+(?=/))?/([^/]+)(?:/[^/]+(/status)?)?", path)
        if match is None or path.count("/") < 3:
            assert method == "GET", path  # discovery, which everybody may use
            return
        group, resource, subresource = match.groups(default="")
        named = path.rsplit("/", 1)[-1] != resource
        verb = "get" if named else "watch" if query.get("watch") else "list"
        self.used.add((group, resource + subresource, {"PATCH": "patch", "POST": "create"}.get(method, verb)))


async def test_the_deployment_has_the_rights_that_the_operator_uses(cluster: Cluster, autojump_clock: object) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.create("kopf.dev", "v1", "kopfexamples", registry=registry)
    @trioperator.on.update("kopf.dev", "v1", "kopfexamples", registry=registry)
    @trioperator.on.delete("kopf.dev", "v1", "kopfexamples", registry=registry)
    async def handle(reason: str, body: trioperator.Body) -> str | None:
        trioperator.info(body, reason="Handled", message="The same again.")
        if reason != "delete":
            return reason
        # A conflicting change, so that the object has to be read again.
        await cluster.patch("kex", "kopf-example-1", {"metadata": {"labels": {"in": "between"}}})
        return None

    run = functools.partial(
        trioperator.operator,
        registry=registry,
        clusterwide=True,
        transport=cluster.transport(),
        connection=trioperator.ConnectionInfo(server="http://cluster"),
    )
    await cluster.apply(ROOT / "examples" / "crd.yaml")
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        await cluster.apply(ROOT / "examples" / "obj.yaml")
        await trio.sleep(10)
        await cluster.patch("kex", "kopf-example-1", {"spec": {"field": "another value"}})
        await trio.sleep(10)
        await cluster.delete("kex", "kopf-example-1")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()

    assert await cluster.list("kex") == []
    rights = Rights()
    for request in cluster.requests:
        rights.use(request.method, request.path, dict(request.query))
    assert rights.used == rights.granted
