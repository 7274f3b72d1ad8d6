"""The table of the benchmark."""

from __future__ import annotations

import pathlib

from tests.bench.report import Results, read_json, render_table, write_json


def make_results(**cpu: float) -> Results:
    results = Results(scale=1000, server="real")
    for name, seconds in cpu.items():
        results.add(name, "async", {"create": {"cpu s": seconds, "patch": 2000}})
    return results


def find_line(table: str, phase: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(phase))
    return line.removeprefix(phase).split()


def test_ratios_to_kopf_and_to_the_peer_are_compared_with_the_goals() -> None:
    table = render_table(make_results(kopf=10.0, peer=3.0, trioperator=4.0))
    cells = find_line(table, "create (async): cpu s")
    assert cells[:7] == ["10", "3.00", "4.00", "0.40", "1.33", "-", "-"]
    assert " ".join(cells[7:]) == "<= 0.50 of kopf: ok, <= 1.00 of peer: MISSED"


def test_without_a_peer_there_are_no_goals_for_it() -> None:
    cells = find_line(render_table(make_results(kopf=10.0, trioperator=6.0)), "create (async): cpu s")
    assert " ".join(cells[7:]) == "<= 0.50 of kopf: MISSED"


def test_the_spread_of_the_rounds_is_shown() -> None:
    results = make_results(trioperator=4.0)
    results.add("trioperator", "async", {"create": {"cpu s": 5.0}})
    results.add("trioperator", "async", {"create": {"cpu s": 6.0}})
    assert find_line(render_table(results), "create (async): cpu s")[5] == "0.40"


def test_figures_are_compared_with_those_of_another_commit(tmp_path: pathlib.Path) -> None:
    write_json(make_results(trioperator=8.0), tmp_path / "before.json")
    before = read_json(tmp_path / "before.json")
    table = render_table(make_results(trioperator=6.0), before=before)
    assert find_line(table, "create (async): cpu s")[6] == "0.75"
