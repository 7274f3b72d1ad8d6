"""``python -m tests.bench``: choose what to measure, run it repeatedly, print the table.

``python -m tests.bench embedded`` measures the embedded API server itself: see :mod:`tests.bench.figures`.
``python -m tests.bench instructions`` counts instructions, which other load does not change.
``python -m tests.bench ledger`` counts those that the ledger takes: see :mod:`tests.bench.ledger`.
``python -m tests.bench scale`` measures trioperator with many objects, kinds and daemons: see :mod:`tests.bench.scale`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Iterator

if __package__ in {None, ""}:  # run as a folder: `python tests/bench`
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from tests.bench import figures, instructions, ledger, scale
from tests.bench.environments import KOPF, find_kopf, find_peer, find_trioperator
from tests.bench.objects import PEER, clear_objects, prepare, remove_all_traces
from tests.bench.processes import Framework, RunFailed
from tests.bench.report import Results, read_json, render_table, write_json
from tests.bench.scenarios import FOR_PROGRAMS, ONE_STYLE, SCENARIOS, Run, Sizes
from tests.bench.servers import ApiServer, ServerFailed, find_assets, open_embedded, open_given, open_real


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    both = ["kopf", "peer", "trioperator"]
    add = parser.add_argument
    add("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all without any")
    add(
        "--rounds",
        type=int,
        default=1,
        help="how often everything is repeated, with alternating frameworks; medians are shown",
    )
    add("--objects", type=int, default=Sizes().objects, help="scales all scenarios (default: %(default)s)")
    add("--style", choices=["sync", "async", "both"], default="both", help="kind of handlers (default: both)")
    add("--framework", choices=both, action="append", help="measure only this one")
    add(
        "--server", choices=["auto", "real", "given", "embedded"], default="auto", help="see the README (default: auto)"
    )
    add("--kopf", default=KOPF, metavar="VERSION", help="which release of Kopf (default: %(default)s)")
    add("--with", choices=["events", "lease"], help="with this, by trioperator: to measure what it costs")
    add("--own-venv", action="store_true", help="install the checkout into an environment of its own")
    add("--against", type=pathlib.Path, metavar="FILE", help="compare with what --json has written of another commit")
    add("--json", type=pathlib.Path, metavar="FILE", help="write the figures of all repetitions to it")
    add("--keep", type=pathlib.Path, metavar="DIR", help="keep logs and journals there")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    options.scenarios = options.scenarios or list(SCENARIOS)
    chosen = vars(options)["with"]
    if chosen is not None:
        os.environ["BENCH_WITH"] = chosen  # for the operators
    options.frameworks = ["trioperator"] if chosen else options.framework or both
    if options.framework and "peer" in options.framework and not PEER:
        parser.error("set $BENCH_PEER to the path of the peer's program")
    options.styles = ["sync", "async"] if options.style == "both" else [options.style]
    return options


@contextlib.contextmanager
def open_server(kind: str, folder: pathlib.Path) -> Iterator[ApiServer]:
    """Open the API server that is asked for; else the given one, else a real one, else the embedded one."""
    given = os.environ.get("KUBECONFIG")
    assets = find_assets() if kind == "real" or (kind == "auto" and not given) else None
    with contextlib.ExitStack() as stack:
        if kind in {"auto", "given"} and given:
            server = stack.enter_context(open_given(pathlib.Path(given)))
        elif assets is not None:
            server = stack.enter_context(open_real(assets, folder=folder))
        elif kind in {"auto", "embedded"}:
            server = stack.enter_context(open_embedded(folder=folder))
        else:
            raise ServerFailed("set KUBECONFIG for --server given, KUBEBUILDER_ASSETS for --server real")
        if server.lives_on:
            stack.callback(remove_all_traces, server.kubeconfig)
        prepare(server.kubeconfig)
        yield server


def run_all(options: argparse.Namespace, server: ApiServer, folder: pathlib.Path, results: Results) -> None:
    """Run every scenario in every style under both frameworks, as often as asked for."""
    frameworks = _find_frameworks(options)
    sizes = Sizes().scaled(options.objects)
    for number in range(options.rounds):
        for scenario in options.scenarios:
            for style in options.styles if scenario not in ONE_STYLE else options.styles[:1]:
                ordered = frameworks if number % 2 == 0 else frameworks[::-1]
                for framework in ordered:
                    if framework.program is not None and scenario not in FOR_PROGRAMS:
                        continue
                    where = folder / f"{number + 1}-{scenario}-{style}-{framework.name}"
                    print(f"round {number + 1}: {scenario} {style} {framework.name}", file=sys.stderr, flush=True)
                    run = Run(framework=framework, server=server, style=style, sizes=sizes, folder=where)
                    try:
                        figures = SCENARIOS[scenario](run)
                    except RunFailed as error:
                        results.add_failure(f"{scenario} {style} {framework.name}: {error}")
                    else:
                        results.add(framework.name, style, figures)
                    clear_objects(server.kubeconfig)


def _find_frameworks(options: argparse.Namespace) -> list[Framework]:
    found = []
    if "kopf" in options.frameworks:
        found.append(find_kopf(options.kopf))
    if "peer" in options.frameworks and PEER:
        found.append(find_peer(PEER))
    if "trioperator" in options.frameworks:
        found.append(find_trioperator(own=options.own_venv))
    return found


def main() -> int:
    """Measure and print. Returns 1 if anything that was to be measured has failed, 0 otherwise, missed goals or not."""
    if sys.argv[1:2] == ["embedded"]:
        return figures.main(sys.argv[2:])
    if sys.argv[1:2] == ["instructions"]:
        return instructions.main(sys.argv[2:])
    if sys.argv[1:2] == ["ledger"]:
        return ledger.main(sys.argv[2:])
    if sys.argv[1:2] == ["scale"]:
        return scale.main(sys.argv[2:])
    options = parse_options()
    # Everything is taken down, and what is measured so far is printed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results(scale=options.objects)
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trioperator-bench-")))
        try:
            server = stack.enter_context(open_server(options.server, temporary / "server"))
            results.server = server.kind
            run_all(options, server, options.keep or temporary, results)
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            results.add_failure("interrupted")
    print(render_table(results, before=read_json(options.against) if options.against else None))
    if options.json:
        write_json(results, options.json)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
