"""The command ``trioperator top``: the live view of an operator in the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from trioperator.cli.acting import echo, to_printable
from trioperator.cli.keys import reading_keys
from trioperator.cli.options import option, taking

if TYPE_CHECKING:
    import httpx
    from rich.console import Group
    from rich.tree import Tree

DEFAULT_URL: Final = "http://127.0.0.1:8083"
_MAX_ROWS: Final = 20
_MAX_CHILDREN: Final = 8


class TopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator top``."""

    url: Annotated[str, typer.Argument(metavar="URL", help="The operator's --live-view URL.")] = DEFAULT_URL
    once: Annotated[bool, option("--once", "Print it once, and exit.")] = False
    tree: Annotated[bool, option("--tree", "Show the tree of tasks, too.")] = False
    interval: Annotated[float, option("--interval SECONDS", "Time between updates.", min=0.1, max=86_400)] = 1.0
    requeue: Annotated[str | None, option("--requeue OBJECT", "Requeue an object: KIND/NAMESPACE/NAME, or a uid.")] = (
        None
    )
    cancel: Annotated[str | None, option("--cancel OBJECT", "Cancel the handlers of an object: as for --requeue.")] = (
        None
    )
    token: Annotated[str | None, option("--token TOKEN", "The operator's --live-view-token.")] = None


@taking(TopOptions, "TOP")
def top(context: typer.Context, options: TopOptions) -> None:
    """Show what an operator is doing, until q is pressed.

    With --requeue or --cancel, do that to one object instead.
    """
    actions = {"requeue": options.requeue, "cancel": options.cancel}
    with open_view(options.url, options.token) as client:
        for action, name in actions.items():
            if name is not None:
                _act(client, action, name)
        if not any(name is not None for name in actions.values()):
            _show(client, interval=None if options.once else options.interval, tree=options.tree)


@contextlib.contextmanager
def open_view(url: str, token: str | None) -> Iterator[httpx.Client]:
    """Open a client of an operator's live view. Errors in the block are printed; then the command exits with 1.

    Raises BadParameter for a token that would be sent without encryption.
    """
    import httpx

    base = url.rstrip("/").removesuffix("/debug")
    if token:
        _check_privacy(base)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with contextlib.ExitStack() as stack:
        try:
            client = httpx.Client(base_url=f"{base}/debug/", headers=headers, timeout=10, trust_env=False)
            client.event_hooks["response"] = [_check]
            yield stack.enter_context(client)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            echo(f"Cannot get the live view from {url}: {error}", err=True)
            if isinstance(error, httpx.ConnectError) and base.startswith("http://"):
                typer.echo(f"Start the operator with --live-view {base} to serve it there.", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _check_privacy(url: str) -> None:
    from trioperator._kube.connection_info import parse_server_url
    from trioperator.errors import ConfigError

    try:
        server = parse_server_url(url)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    if not (server.scheme == "https" or server.is_loopback):
        raise typer.BadParameter(
            f"the token is sent only over HTTPS or to this machine, not to {url}: use a port-forward."
        )


def _act(client: httpx.Client, action: str, name: str) -> None:
    """Request an action for an object. Exits with 1 if the operator rejects it."""
    uid = _find_uid(_get(client), name)
    response = client.post(action, params={"uid": uid})
    echo(response.text.strip(), err=not response.is_success)
    if not response.is_success:
        raise typer.Exit(1)


def _find_uid(data: Mapping[str, Any], name: str) -> str:
    """Return the uid of an object by its name, if the view shows it; otherwise, take the name for a uid."""
    for shown in (*data["calls"], *data["queue"]["objects"]):
        if shown.get("object", "").lower() == name.lower():
            return str(shown["uid"])
    return name


def _check(response: httpx.Response) -> None:
    """Raise ValueError for a missing or wrong token or view, HTTPError for errors of the server."""
    if response.status_code == 401:
        raise ValueError("the token is missing or wrong. Pass --token, or set its environment variable: see --help")
    if response.status_code == 404 and response.read().strip() == b"not found":  # as the operator's other endpoints say
        raise ValueError("there is none. Pass the URL that the operator was started with: --live-view URL")
    if response.status_code >= 500:
        response.raise_for_status()


def _get(client: httpx.Client) -> Mapping[str, Any]:
    response = client.get("snapshot")
    response.raise_for_status()
    data: Mapping[str, Any] = response.json()
    return data


def _show(client: httpx.Client, *, interval: float | None, tree: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if interval is None:
        console.print(render(_get(client), tree=tree))
        return
    shown = Live(render(_get(client), tree=tree), console=console, screen=True, auto_refresh=False)
    with reading_keys() as read, shown as live:
        while read(interval) != "q":
            live.update(render(_get(client), tree=tree), refresh=True)


def render(data: Mapping[str, Any], *, tree: bool = False) -> Group:
    """Render a snapshot for the terminal."""
    from rich.console import Group
    from rich.text import Text

    queue = data["queue"]
    state = "starting" if not data["ready"] else "standby" if data["paused"] else "active"
    objects = sum(watch["objects"] for watch in data["watches"])
    figures = f"{len(data['calls'])} handlers, {queue['at_work']} at work, {queue['queued']} queued"
    head = Text(f"trioperator: {state}, {figures}, {queue['delayed']} due later, {objects} objects", style="bold")
    parts: list[Any] = [head, _render_calls(data["calls"]), _render_queue(queue["objects"])]
    parts += [_render_timers(data.get("timers", ())), _render_watches(data)]
    if paused := data.get("paused_objects", {}).get("objects"):  # operators of earlier releases have none
        parts.insert(3, _render_paused(paused))
    if tree:
        parts.append(_render_tree(data["tasks"]))
    return Group(*parts)


def _render_calls(calls: Iterable[Mapping[str, Any]]) -> Any:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "handler": lambda call: call["handler"],
        "object": lambda call: call.get("object", ""),
        "cause": lambda call: call.get("cause", call["kind"]),
        "running": lambda call: f"{call['seconds']:.1f} s",
        "deadline": lambda call: f"{call['deadline']:.1f} s" if "deadline" in call else "",
        "at": lambda call: call.get("at", ""),
        "waits for": lambda call: " ".join(filter(None, (call.get("waits"), call.get("request")))),
    }
    return _render_table("Running handlers", columns, calls)


def _render_queue(objects: Iterable[Mapping[str, Any]]) -> Any:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "object": lambda item: item["object"],
        "due": _describe_due,
        "why": lambda item: f"{item['why']} of {item['handler']}" if "handler" in item else item.get("why", ""),
        "last error": lambda item: f"{item['error']} (retry {item['retry']})" if "error" in item else "",
    }
    return _render_table("Next in the queue", columns, objects)


def _render_timers(timers: Iterable[Mapping[str, Any]]) -> Any:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "timer": lambda timer: timer["id"],
        "object": lambda timer: timer["object"],
        "next call": _describe_due,
    }
    return _render_table("Next timers", columns, timers)


def _describe_due(item: Mapping[str, Any]) -> str:
    return f"in {item['due']:.1f} s" if item["due"] > 0 else "now"


def _render_paused(objects: Iterable[Mapping[str, Any]]) -> Any:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "object": lambda item: item["object"],
        "how": lambda item: item["paused"],
    }
    return _render_table("Paused objects", columns, objects)


def _render_watches(data: Mapping[str, Any]) -> Any:
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "resource": lambda watch: watch["resource"],
        "for": lambda watch: watch.get("purpose", ""),
        "state": lambda watch: watch["state"],
        "objects": lambda watch: str(watch["objects"]),
        "events": lambda watch: str(watch["events"]),
        "last response": lambda watch: f"{watch['idle']:.0f} s ago",
    }
    return _render_table("Watches", columns, data["watches"])


def _render_table(
    title: str, columns: Mapping[str, Callable[[Mapping[str, Any]], str]], rows: Iterable[Mapping[str, Any]]
) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, header_style="dim", overflow="ellipsis", no_wrap=True)
    for row in rows[:_MAX_ROWS]:
        table.add_row(*(Text(to_printable(find(row))) for find in columns.values()))
    if len(rows) > _MAX_ROWS:
        table.add_row(Text(f"and {len(rows) - _MAX_ROWS} more", style="dim"))
    return Group(Text(title, style="bold"), table)  # the title of a table would be wrapped to its width


def _render_tree(node: Mapping[str, Any], parent: Tree | None = None) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    details = (node.get("object"), node.get("at"), node.get("waits"), node.get("request"))
    label = Text(to_printable(node["name"]))
    label.append(to_printable("  " + "  ".join(filter(None, details))), style="dim")
    tree = Tree(label) if parent is None else parent.add(label)
    children = node.get("children", ())
    for child in children[:_MAX_CHILDREN]:
        _render_tree(child, tree)
    if len(children) > _MAX_CHILDREN:
        tree.add(Text(f"and {len(children) - _MAX_CHILDREN} more", style="dim"))
    return tree
