"""Kopf's own examples run: where ``$KOPF_REPOSITORY`` is a checkout of Kopf's repository, as for ``nox -s kopf``."""

from __future__ import annotations

import os
import pathlib
import textwrap

import pytest

from tests.kopf.examples import Example, Log, find_examples, judge, run_example

REPOSITORY = os.environ.get("KOPF_REPOSITORY")
EXAMPLES = find_examples(pathlib.Path(REPOSITORY)) if REPOSITORY else []


@pytest.mark.skipif(not EXAMPLES, reason="$KOPF_REPOSITORY is not set")
@pytest.mark.parametrize("mode", ["unchanged", "native"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
async def test_an_example_of_kopf_runs(example: Example, mode: str) -> None:
    problems = await run_example(example, mode)
    assert not problems, "\n".join(problems)


@pytest.fixture
def own(tmp_path: pathlib.Path) -> Example:
    """An example that is like Kopf's."""
    path = tmp_path / "examples" / "00-own" / "example.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        textwrap.dedent(
            """
            import kopf

            @kopf.on.create('kopfexamples')
            def create_fn(**_):
                pass

            @kopf.on.delete('kopfexamples')
            def delete_fn(**_):
                pass

            E2E_SUCCESS_COUNTS = {'create_fn': 1}
            """
        )
    )
    return find_examples(tmp_path)[0]


GOOD = """
[default/kopf-example-1] Adding the finalizer, thus preventing the actual deletion.
[default/kopf-example-1] Creation is in progress: version 1.
[default/kopf-example-1] Handler 'create_fn' succeeded.
[default/kopf-example-1] Deletion is in progress: version 2.
[default/kopf-example-1] Deleted, really deleted, and we are notified.
"""


def test_a_log_is_judged_by_the_marks_of_the_example(own: Example) -> None:
    assert own.marks == {"E2E_SUCCESS_COUNTS": {"create_fn": 1}}
    assert judge(own, GOOD) == []
    for line in GOOD.strip().splitlines():
        assert judge(own, GOOD.replace(line, "")), line


@pytest.mark.parametrize(
    "more",
    [
        "Traceback (most recent call last):",
        "Handler 'create_fn' succeeded.",
        "Handler 'other' failed permanently: oops",
        "It uses asyncio, and this operator runs on Trio",
    ],
)
def test_what_goes_wrong_in_an_example_is_found(own: Example, more: str) -> None:
    assert judge(own, f"{GOOD}{more}\n")


async def test_what_is_never_logged_is_not_waited_for_forever(autojump_clock: object) -> None:
    assert not await Log().wait_for("nothing")
