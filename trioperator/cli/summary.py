"""The summary of an operator when it starts on a terminal: its handlers, their scope, and what it serves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from trioperator.cli.run_options import LogFormatName

if TYPE_CHECKING:
    from trioperator.cli.run_options import RunOptions


def show_summary(options: RunOptions, stream: TextIO | None = None) -> None:
    """Print the summary to a terminal, by default where logs go; print nothing elsewhere, for JSON, or if quiet."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() or options.quiet or options.format is LogFormatName.JSON:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, text in (*_describe_handlers(), *_describe_options(options)):
        table.add_row(Text(title, style="bold cyan"), Text(text))  # Text: names are no markup
    Console(file=stream).print(table)


def _describe_handlers() -> Iterator[tuple[str, str]]:
    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator._tooling.checking import list_handlers, list_selectors

    kinds: dict[str, dict[str, list[str]]] = {}
    registry = get_default_registry()
    selectors = list_selectors(registry)
    for handler in list_handlers(registry):
        kinds.setdefault(handler.kind or "operator", {}).setdefault(handler.decorator, []).append(handler.id)
    for kind, decorators in kinds.items():
        texts = [f"{name}: {', '.join(dict.fromkeys(ids))}" for name, ids in decorators.items()]
        texts += [f"received: {selectors[kind]}"] if kind in selectors else []
        yield kind, "; ".join(texts)


def _describe_options(options: RunOptions) -> Iterator[tuple[str, str]]:
    """Yield the scope, the coordination and the endpoints, as the command line has them."""
    yield "namespaces", ", ".join(options.namespaces) or "all"
    if options.shards > 1:
        yield "coordination", f"{options.shards} shards"
    elif options.has_lease:
        yield "coordination", f"leader election by the Lease {options.lease}"
    if options.standalone:
        yield "peering", "none"
    elif options.peering is not None:
        yield "peering", options.peering
    if options.embedded:  # the log says which other one it is, as soon as that is known
        yield "cluster", "embedded"
    for name in ("liveness", "health", "metrics", "live_view"):
        url = getattr(options, name)
        if url is not None:
            yield name.replace("_", " "), url
