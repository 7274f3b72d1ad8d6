"""Tests for :mod:`trioperator.cli.loading`."""

from __future__ import annotations

import pathlib
import pickle
import sys
import traceback

import pytest

import trioperator
from trioperator.cli.loading import LoadingError, load_all, load_file, load_module
from trioperator.errors import ConfigError
from trioperator.testing.sources import fresh_registry

pytestmark = pytest.mark.usefixtures("restored_modules")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Change to an empty directory, which is not on ``sys.path`` yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    return tmp_path


def test_files_are_separate_modules_and_can_import_their_neighbours(folder: pathlib.Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "neighbour_of_main.py").write_text("value = 5\n")
    (inner / "main.py").write_text("import neighbour_of_main\nvalue = neighbour_of_main.value\nname = __name__\n")
    load_file("inner/main.py", index=2)
    module = sys.modules["__trioperator_script_2__inner/main%2Epy"]
    assert module.value == 5
    assert module.name == module.__name__
    assert module.__file__ == str(inner / "main.py")
    assert sys.path[0] == str(inner)


def test_files_and_modules_are_loaded_in_order(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(sys, "loading_order", order, raising=False)
    for name in ("one", "two", "three_of_order"):
        (folder / f"{name}.py").write_text(f"import sys\nsys.loading_order.append({name!r})\n")
    load_all(["two.py", "one.py"], ["three_of_order"])
    assert order == ["two", "one", "three_of_order"]
    assert "__trioperator_script_0__two%2Epy" in sys.modules
    assert "__trioperator_script_1__one%2Epy" in sys.modules


def test_a_file_that_is_passed_twice_is_loaded_once(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(sys, "loading_order", order, raising=False)
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(f"import sys\nsys.loading_order.append({name!r})\n")
    load_all(["one.py", "two.py", "./one.py"], [])
    assert order == ["one", "two"]


def test_a_file_may_have_any_name(folder: pathlib.Path) -> None:
    (folder / "my operator").write_text("value = 1\n")
    load_file("my operator")
    assert sys.modules["__trioperator_script_0__my operator"].value == 1


def test_what_a_file_defines_can_be_pickled(folder: pathlib.Path) -> None:
    (folder / "main.py").write_text("def work():\n    return 5\nclass Problem(Exception):\n    pass\n")
    load_file("./main.py")
    [module] = [module for name, module in sys.modules.items() if name.startswith("__trioperator_script_0__")]
    assert pickle.loads(pickle.dumps(module.work)) is module.work
    assert type(pickle.loads(pickle.dumps(module.Problem("x")))) is module.Problem


def test_classes_of_a_file_know_their_module(folder: pathlib.Path) -> None:
    (folder / "main.py").write_text(
        "from __future__ import annotations\n"
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class C:\n"
        "    x: int\n"
        "assert C(1).x == 1\n"
    )
    load_file("main.py")


def test_handlers_that_are_declared_with_kopf_itself_are_an_error_that_says_what_to_do(folder: pathlib.Path) -> None:
    (folder / "kopf.py").write_text("def on(fn): return fn\n")
    (folder / "app.py").write_text("import kopf\n@kopf.on\ndef create_fn(): pass\n")
    with (
        fresh_registry(),
        pytest.raises(ConfigError, match=r"imported from .*kopf\.py\. Run .* `trioperator-kopf run`"),
    ):
        load_all(["app.py"], [])


def test_kopf_may_be_imported_beside_trioperator(folder: pathlib.Path) -> None:
    (folder / "kopf.py").write_text("")
    (folder / "app.py").write_text("import kopf, trioperator\n@trioperator.on.startup()\ndef start_fn(**_): pass\n")
    with fresh_registry() as registry:
        load_all(["app.py"], [])
        assert [handler.id for handler in registry] == ["start_fn"]


def test_a_missing_file_is_an_error_without_a_traceback(folder: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"^Cannot read the file nothing\.py: No such file or directory\.$") as caught:
        load_file("nothing.py")
    assert not isinstance(caught.value, LoadingError)


def test_a_directory_is_an_error(folder: pathlib.Path) -> None:
    (folder / "pkg").mkdir()
    with pytest.raises(
        ConfigError,
        match=r"^Cannot read the file pkg: it is a directory\. Pass the files in it, or a package with -m\.$",
    ):
        load_file("pkg")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"def (\n", "SyntaxError: invalid syntax"),
        (b"x = '\xff'\n", "SyntaxError: "),
        (b"x = 1\0\n", "(SyntaxError|ValueError): "),
        (b"import no_such_module_anywhere\n", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        (b"def f():\n    raise ValueError\nf()\n", "ValueError$"),
        (b"import sys\nsys.exit(0)\n", r"it ends the program, with SystemExit\(0\)$"),
    ],
)
def test_the_error_in_a_file_is_the_cause(folder: pathlib.Path, source: bytes, message: str) -> None:
    (folder / "main.py").write_bytes(source)
    before = set(sys.modules)
    with pytest.raises(LoadingError, match=rf"^Cannot load the file main\.py: {message}") as caught:
        load_file("main.py")
    assert caught.value.__cause__ is not None
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [frame.filename for frame in frames[:1]] in ([], [str(folder / "main.py")])
    assert not {name for name in set(sys.modules) - before if name.startswith("__trioperator_script")}


def test_the_traceback_goes_on_into_other_files(folder: pathlib.Path) -> None:
    (folder / "broken_helper.py").write_text("1/0\n")
    (folder / "main.py").write_text("\nimport broken_helper\n")
    with pytest.raises(LoadingError) as caught:
        load_file("main.py")
    assert caught.value.__cause__ is not None
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [pathlib.Path(frame.filename).name for frame in frames] == ["main.py", "broken_helper.py"]


def test_modules_are_imported_from_the_current_directory(folder: pathlib.Path) -> None:
    package = folder / "package_of_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("value = 3\n")
    load_module("package_of_test.inner")
    assert sys.modules["package_of_test.inner"].value == 3


@pytest.mark.parametrize(
    "name", ["no_such_module", "no_such_module.inner", "json.no_such_module", "json.decoder.nothing"]
)
def test_a_missing_module_is_an_error_without_a_traceback(folder: pathlib.Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Cannot import the module {name}: No module named ") as caught:
        load_module(name)
    assert not isinstance(caught.value, LoadingError)


@pytest.mark.parametrize("name", ["", ".relative", "main.py"])
def test_an_invalid_name_of_a_module_is_an_error(folder: pathlib.Path, name: str) -> None:
    (folder / "main.py").write_text("")
    with pytest.raises(ConfigError) as caught:
        load_module(name)
    assert not isinstance(caught.value, LoadingError)


def test_a_module_that_imports_a_missing_one_has_a_traceback(folder: pathlib.Path) -> None:
    (folder / "lacking_module.py").write_text("import no_such_module\n")
    with pytest.raises(LoadingError, match=r"^Cannot import the module lacking_module: ModuleNotFoundError") as caught:
        load_module("lacking_module")
    assert caught.value.__cause__ is not None
    [frame] = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert frame.filename == str(folder / "lacking_module.py")


def test_a_module_with_a_syntax_error_is_an_error_in_user_code(folder: pathlib.Path) -> None:
    (folder / "unreadable_module.py").write_text("def (\n")
    with pytest.raises(LoadingError, match="SyntaxError: invalid syntax") as caught:
        load_module("unreadable_module")
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is None


def test_a_module_that_ends_the_program_is_an_error(folder: pathlib.Path) -> None:
    (folder / "ending_module.py").write_text("import sys\nsys.exit('done')\n")
    with pytest.raises(LoadingError, match=r"it ends the program, with SystemExit\('done'\)$"):
        load_module("ending_module")


@pytest.mark.parametrize(
    "source", ["from . import other\n", "from .other import value\n", "from .. import other\n", "from .a.b import c\n"]
)
@pytest.mark.parametrize("name", ["main.py", "main"])
@pytest.mark.parametrize("packages", [0, 1, 2])
def test_a_relative_import_in_a_file_is_an_error_that_says_what_to_write(
    folder: pathlib.Path, source: str, name: str, packages: int
) -> None:
    inner = folder / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / name).write_text(source)
    (inner / "other.py").write_text("value = 1\n")
    for directory in [inner, inner.parent][:packages]:
        (directory / "__init__.py").touch()
    module, where = ("outer.inner.main", folder) if packages == 2 else ("inner.main", folder / "outer")
    with pytest.raises(LoadingError) as caught:
        load_file(f"outer/inner/{name}")
    assert f"Cannot load the file outer/inner/{name}: relative imports do not work in a file" in str(caught.value)
    assert f"Pass it as a module, -m {module} in the directory {where}," in str(caught.value)


def test_the_advice_about_relative_imports_works(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "relative_package_of_test"
    package.mkdir()
    (package / "main.py").write_text("from .other import value\n")
    (package / "other.py").write_text("value = 5\n")
    with pytest.raises(LoadingError, match=r"-m relative_package_of_test\.main"):
        load_file("relative_package_of_test/main.py")
    load_module("relative_package_of_test.main")
    assert sys.modules["relative_package_of_test.main"].value == 5


def test_a_missing_module_is_no_relative_import(folder: pathlib.Path) -> None:
    (folder / "main.py").write_text("import main.nothing\n")
    with pytest.raises(LoadingError, match=r"No module named 'main\.nothing'"):
        load_file("main.py")


def test_a_misspelled_decorator_is_an_error_with_the_one_that_was_meant(folder: pathlib.Path) -> None:
    (folder / "main.py").write_text("import trioperator\n@trioperator.on.creat('widgets')\ndef fn(**_): ...\n")
    with pytest.raises(LoadingError, match=r"creat' \(did you mean create\?\)$"):
        load_file("main.py")


RUNS = [
    "import trioperator\ntrioperator.run(standalone=True)",
    "import trio, trioperator\ntrio.run(trioperator.operator)",
    "from trioperator.kopf.running import run\nrun(standalone=True)",
    "import asyncio\nfrom trioperator.kopf.running import operator\nasyncio.run(operator())",
]


@pytest.mark.parametrize("source", RUNS)
@pytest.mark.parametrize("as_module", [False, True])
def test_a_source_that_runs_an_operator_while_it_is_loaded_is_an_error(
    folder: pathlib.Path, source: str, *, as_module: bool
) -> None:
    (folder / "runs_at_once.py").write_text(source)
    with pytest.raises(LoadingError, match=r"runs_at_once.* calls (run|operator)\(\) while .*__main__") as caught:
        load_module("runs_at_once") if as_module else load_file("runs_at_once.py")
    assert isinstance(caught.value.__cause__, ConfigError)


def test_sources_that_are_guarded_are_loaded_and_what_is_loaded_before_may_run(folder: pathlib.Path) -> None:
    (folder / "guarded.py").write_text(f"if __name__ == '__main__':\n    {RUNS[0].splitlines()[1]}\n")
    load_file("guarded.py")
    with pytest.raises(TypeError, match="clusterwide or restricted"):  # so it was started
        trioperator.run(clusterwide=True, namespaces=["default"])
