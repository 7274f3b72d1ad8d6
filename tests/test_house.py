"""Tests for :mod:`tests.house`: the figures of the project are within their limits, and are measured as they say."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests import house

Write: TypeAlias = Callable[..., list[house.Module]]


@pytest.fixture(scope="module")
def figures() -> dict[str, house.Figure]:
    """Return the figures of the project."""
    return {figure.name: figure for figure in house.measure()}


@pytest.mark.parametrize(
    "name",
    [
        "classes with more than 12 attributes",
        "foreign assignments in trioperator._runtime",
        "functions above 30 lines",
        "suppressions without a reason",
        "modules without a mirrored test",
    ],
)
def test_the_project_is_within_the_limit(figures: dict[str, house.Figure], name: str) -> None:
    figure = figures[name]
    assert figure.is_met, house.report([figure])


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    """Return a function that writes sources by their paths, and reads them as modules."""

    def write(**sources: str) -> list[house.Module]:
        for name, text in sources.items():
            path = tmp_path / "trioperator" / f"{name.replace('__', '/').replace('/init/', '__init__')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return house.read_modules(tmp_path, "trioperator")

    return write


class TestCrowdedClasses:
    def test_slots_and_assignments_to_self_are_counted_once(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(house, "MAX_ATTRIBUTES", 5)
        text = """
            class Known:
                __slots__ = ("one", "two", "__weakref__")
                three: int
                LIMIT: ClassVar[int] = 5

                def __init__(self):
                    self.one = self.four = None
                    self.five: int = 5

                def change(self, other):
                    self.two, self.six = 1, 2
                    self.three += 1
                    other.seven = self.eight
        """
        figure = house.count_crowded_classes(write(known=text))
        assert figure.places == ["trioperator/known.py:2 Known has 6: five, four, one, six, three, two"]
        assert not figure.is_met


class TestForeignAssignments:
    STATE = """
        class State:
            version: str
            def __init__(self):
                self.body = None
    """

    def found(self, write: Write, text: str) -> list[str]:
        modules = write(_runtime__state=self.STATE, _runtime__other=text)
        places = house.count_foreign_assignments(modules).places
        return [place.removeprefix("trioperator/_runtime/other.py:") for place in places]

    @pytest.mark.parametrize(
        "statement",
        [
            "state.body = 1",
            "state.body += 1",
            "del state.body",
            "state.version: str = 'x'",
            "first, state.body = 1, 2",
            "self.state.body = 1",
            "for state.body in (): pass",
        ],
    )
    def test_an_attribute_of_another_module_is_found_in_any_statement(self, write: Write, statement: str) -> None:
        [place] = self.found(write, f"def change(state):\n    {statement}\n")
        assert place.startswith("2 ")
        assert place.endswith(" belongs to trioperator._runtime.state.State")

    @pytest.mark.parametrize(
        "text",
        [
            "class A:\n    def change(self):\n        self.body = 1",
            "class A:\n    body: int\n\ndef change(a):\n    a.body = 1",
            "class A:\n    body: int\n\ndef change(a: A):\n    a.body = 1",
            "def change(request: Request):\n    request.body = 1",
            "def change():\n    request = Request()\n    request.body = 1",
            "def change(state):\n    state.body['x'] = state.version",
            "def change(state):\n    state.unknown = 1",
        ],
    )
    def test_attributes_of_this_module_and_of_other_packages_are_left_alone(self, write: Write, text: str) -> None:
        assert self.found(write, text) == []

    @pytest.mark.parametrize(
        "text",
        [
            "class A:\n    body: int\n\ndef change(a: State):\n    a.body = 1",
            "class A:\n    body: int\n\ndef change(a: 'State | None'):\n    a.body = 1",
            "class A:\n    body: int\n\ndef change():\n    a = state.State()\n    a.body = 1",
            "class A:\n    def __init__(self, a: State):\n        self.a = a\n        self.body = 1\n"
            "    def change(self):\n        self.a.body = 1",
        ],
    )
    def test_annotations_and_calls_determine_the_class(self, write: Write, text: str) -> None:
        assert len(self.found(write, text)) == 1

    def test_other_packages_may_assign(self, write: Write) -> None:
        modules = write(_runtime__state=self.STATE, supervisor="def change(state):\n    state.body = 1")
        assert house.count_foreign_assignments(modules).value == 0


class TestLongFunctions:
    @pytest.mark.parametrize(("lines", "found"), [(30, 0), (31, 1)])
    def test_lines_with_code_are_counted_in_the_body(self, write: Write, lines: int, found: int) -> None:
        body = '    """A docstring.\n\n    of lines.\n    """\n    # a comment\n\n' + "    x = 1  # of code\n" * lines
        figure = house.count_long_functions(write(one=f"@decorator\ndef long():\n{body}"))
        assert figure.value == found
        assert figure.places == ["trioperator/one.py:2 long() has 31 lines"] * found

    def test_methods_and_long_strings_count(self, write: Write) -> None:
        text = "class A:\n    async def long(self):\n        x = '''\n" + "\n" * 29 + "'''\n"
        assert house.count_long_functions(write(one=text)).places == ["trioperator/one.py:2 long() has 31 lines"]


def test_a_suppression_needs_a_reason_beside_it(write: Write) -> None:
    text = """
        a = 1  # type: ignore[assignment]  # untyped
        b = 2  # noqa: E731 -- short
        c = 3  # type: ignore[assignment, misc]
        d = 4  # noqa: A001, A002
    """
    assert house.count_unexplained_suppressions(write(one=text)).places == [
        "trioperator/one.py:4 # type: ignore[assignment, misc]",
        "trioperator/one.py:5 # noqa: A001, A002",
    ]


class TestMirroredTests:
    def test_a_module_needs_a_test_of_its_name_in_the_mirrored_folder(
        self, tmp_path: pathlib.Path, write: Write
    ) -> None:
        modules = write(app="", _kube__retry="", _kube__watch="", _runtime__retry="")
        (tmp_path / "tests" / "kube").mkdir(parents=True)
        for name in ("test_app.py", "test_watch.py", "kube/test_retry.py", "kube/watch.py"):
            (tmp_path / "tests" / name).touch()
        assert house.count_unmirrored_modules(modules, house.read_modules(tmp_path, "tests")).places == [
            "trioperator/_kube/watch.py has no tests/kube/test_watch.py",
            "trioperator/_runtime/retry.py has no tests/runtime/test_retry.py",
        ]

    def test_packages_private_modules_and_exceptions_need_none(self, write: Write) -> None:
        modules = write(_kube____init__="", helpers___clients="", _model__jsontypes="")
        assert [module.name for module in modules] == [
            "trioperator._kube",
            "trioperator._model.jsontypes",
            "trioperator.helpers._clients",
        ]
        assert house.count_unmirrored_modules(modules, []).value == 0

    def test_the_exceptions_exist(self) -> None:
        names = {module.name for module in house.read_modules(house.ROOT, "trioperator")}
        assert house.UNMIRRORED.keys() <= names


def test_the_table_shows_figures_limits_and_what_is_above_them(write: Write) -> None:
    figures = [
        house.Figure("good things", 1, 2, ["here"]),
        house.Figure("bad things", 3, 0, ["a.py:1 bad"]),
        house.Figure("lines", 7, None, ["b.py"]),
    ]
    assert house.report(figures).splitlines() == [
        "figure       value  limit",
        "good things      1      2",
        "bad things       3      0  too high",
        "lines            7",
        "",
        "bad things:",
        "  a.py:1 bad",
        "",
        "lines:",
        "  b.py",
    ]


def test_the_script_prints_the_table_and_fails_when_a_figure_is_too_high(
    write: Write, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(_runtime__cache__object_state="class ObjectState:\n    body: object\n")
    for name in ("cache/test_object_state", "test_other"):
        test = tmp_path / "tests" / "runtime" / f"{name}.py"
        test.parent.mkdir(parents=True, exist_ok=True)
        test.touch()
    assert house.main(tmp_path) == 0
    assert capsys.readouterr().out.startswith("figure ")
    write(_runtime__other="def change(state):\n    state.body = 1\n")
    assert house.main(tmp_path) == 1
    assert "trioperator/_runtime/other.py:2 state.body belongs to" in capsys.readouterr().out
