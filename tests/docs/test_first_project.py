"""What readers of the page about the first project replace by hand; it is followed in ``tests/e2e``."""

from __future__ import annotations

from tests.e2e.test_first_project import merge, read_steps, split
from trioperator._tooling.scaffolding import ProjectOptions, render_project


def test_a_block_has_everything_between_the_first_and_the_last_of_what_it_replaces() -> None:
    files = render_project(ProjectOptions(name="greeting-operator", kind="Greeting", group="demo.example.com"))
    for step in read_steps():
        if step.language != "python":
            continue
        source = files[step.file]
        names, new = [name for name, _ in split(source)], [name for name, _ in split(step.text)]
        replaced = [names.index(name) for name in new if name in names]
        if replaced and all(isinstance(name, str) for name in new):
            between = names[min(replaced) : max(replaced) + 1]
            assert [name for name in between if name not in new] == [], step.intro
        files[step.file] = merge(source, step.text)
