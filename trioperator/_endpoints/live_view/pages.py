"""The pages of the live view: what each of them shows, by the query of its URL. Knows no web framework."""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from trioperator._concurrency.clock import wall_now
from trioperator._endpoints.live_view.shown import ShownOperator
from trioperator._handling.handlers.handler import ActivityHandler, ChangeHandler, Handler
from trioperator._telemetry.failures import Failure
from trioperator._telemetry.objects import STATES, ObjectFilter, describe_object, find_object, find_objects
from trioperator._telemetry.snapshot import Tasks, describe_queue, describe_state, describe_timers, describe_watches
from trioperator._telemetry.why import describe_history

T = TypeVar("T")

#: Rows of a table on a page.
ROWS: Final = 100
# Rows of each table on the overview.
_FEW: Final = 10
# Seconds since an error for which it counts as a recent one.
_RECENT: Final = 3600.0
_MAX_PAGE: Final = 1_000_000

Query: TypeAlias = Mapping[str, str]


class Links:
    """URLs of the live view, below the path where it is mounted."""

    def __init__(self, root: str) -> None:
        self._root = urllib.parse.quote(root, safe="/")

    def __call__(self, page: str = "", /, **query: object) -> str:
        """Return the URL of a page. Empty values are left out of its query."""
        pairs = [(name, str(value)) for name, value in query.items() if value not in ("", None)]
        return f"{self._root}/{page}" + (f"?{urllib.parse.urlencode(pairs)}" if pairs else "")


class Page(msgspec.Struct, frozen=True):
    """A page: its title for the navigation, and what its template gets. That is None where nothing is to be shown."""

    title: str
    describe: Callable[[ShownOperator, Query], dict[str, Any] | None]


class Paging(Generic[T]):
    """The rows of one page of a table, and which page of how many it is."""

    def __init__(self, rows: Sequence[T], *, total: int, number: int) -> None:
        self.rows = rows
        self.total = total
        self.number = number
        self.count = max(1, -(-total // ROWS))
        self.first = (number - 1) * ROWS + 1
        self.last = self.first + len(rows) - 1

    @classmethod
    def of(cls, rows: Sequence[T], query: Query) -> Paging[T]:
        """Return the page of *rows* for which a query asks."""
        number = _page_number(query, len(rows))
        return cls(rows[(number - 1) * ROWS : number * ROWS], total=len(rows), number=number)


def _page_number(query: Query, total: int | None = None) -> int:
    text = query.get("page", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 1
    last = _MAX_PAGE if total is None else max(1, -(-total // ROWS))
    return min(max(number, 1), last)


def _matches(text: str, *values: object) -> bool:
    return not text or text.lower() in " ".join(str(value) for value in values).lower()


def _show_overview(shown: ShownOperator, query: Query) -> dict[str, Any]:
    parts = shown.parts
    tasks, watches, queue = Tasks(shown.root), list(describe_watches(parts)), describe_queue(parts, messages=True)
    failures = _newest_failures(shown)
    since = wall_now() - datetime.timedelta(seconds=_RECENT)
    return {
        "calls": tasks.calls[:_FEW],
        "call_count": len(tasks.calls),
        "queue": queue,
        "next": queue["objects"][:_FEW],
        "timers": describe_timers(parts)[:_FEW],
        "object_count": sum(watch["objects"] for watch in watches),
        "watch_count": len(watches),
        "troubled": [watch for watch in watches if watch["state"] != "watching"],
        "problems": () if parts.manager is None else parts.manager.problems,
        "failures": failures[:_FEW],
        "recent": sum(failure.time >= since for failure in failures),
    }


def _show_kinds(shown: ShownOperator, query: Query) -> dict[str, Any]:
    text = query.get("q", "")
    watches = [each for each in describe_watches(shown.parts) if _matches(text, each["resource"], each["path"])]
    return {"paging": Paging.of(sorted(watches, key=lambda watch: str(watch["path"])), query)}


def _show_objects(shown: ShownOperator, query: Query) -> dict[str, Any]:
    state = query.get("state", "")
    wanted = ObjectFilter(
        kind=query.get("kind", ""),
        namespace=query.get("namespace", ""),
        text=query.get("q", ""),
        state=state if state in STATES else "",
    )
    number = _page_number(query)
    total, rows = find_objects(shown.parts, wanted, start=(number - 1) * ROWS, limit=ROWS)
    if not rows and total:
        number = _page_number(query, total)
        total, rows = find_objects(shown.parts, wanted, start=(number - 1) * ROWS, limit=ROWS)
    kinds = sorted({str(watch["resource"]) for watch in describe_watches(shown.parts)})
    return {"paging": Paging(rows, total=total, number=number), "kinds": kinds, "states": STATES}


def _show_object(shown: ShownOperator, query: Query) -> dict[str, Any] | None:
    """Show an object by its uid, also when only its errors are still known; or by its kind, namespace and name."""
    wanted = ObjectFilter(kind=query.get("kind", ""), namespace=query.get("namespace", ""))
    uid = query.get("uid", "") or find_object(shown.parts, wanted=wanted, name=query.get("name", "")) or ""
    if not uid:
        return None
    failures = [failure for failure in _newest_failures(shown) if failure.uid == uid]
    described = describe_object(shown.parts, uid)
    if described is None and not failures:
        return None
    calls = [call for call in Tasks(shown.root).calls if call.get("uid") == uid]
    page = shown.parts.ledger.find(uid)
    return {
        "uid": uid,
        "object": described,
        "calls": calls,
        "failures": failures[:ROWS],
        "known": failures[:1],
        "history": None if page is None else describe_history(shown.parts.ledger, uid, page),
    }


def _show_handlers(shown: ShownOperator, query: Query) -> dict[str, Any]:
    text = query.get("q", "")
    calls = [call for call in Tasks(shown.root).calls if _matches(text, call["handler"], call.get("object", ""))]
    rows = [row for row in _describe_handlers(shown) if _matches(text, row["id"], row["selector"], row["kind"])]
    return {"calls": calls[:ROWS], "call_count": len(calls), "paging": Paging.of(rows, query)}


def _describe_handlers(shown: ShownOperator) -> Iterator[dict[str, Any]]:
    """Yield the handlers of the operator, and how often they have been called, with which results."""
    results: dict[str, dict[str, int]] = {}
    instruments = shown.parts.instruments
    if instruments is not None:
        instruments.fold()
        for (_, name), calls in instruments.statistics.calls.items():
            counts = results.setdefault(name, {})
            for result, count in (+calls.results).items():  # without zeros
                counts[result] = counts.get(result, 0) + count
    for handler in shown.parts.registry:
        counts = results.get(handler.id, {})
        yield {
            "id": handler.id,
            "kind": _name_decorator(handler),
            "selector": str(getattr(handler, "selector", "")),
            "calls": sum(counts.values()),
            "results": sorted(counts.items()),
        }


def _name_decorator(handler: Handler) -> str:
    """Return the name of the handler's decorator, or else of its kind."""
    if isinstance(handler, ChangeHandler):
        return "change" if handler.reason is None else str(handler.reason)
    if isinstance(handler, ActivityHandler):
        return str(handler.activity)
    return type(handler).__name__.removesuffix("Handler").lower()


def _show_errors(shown: ShownOperator, query: Query) -> dict[str, Any]:
    text, handler = query.get("q", ""), query.get("handler", "")
    found = [
        failure
        for failure in _newest_failures(shown)
        if (not handler or failure.handler == handler)
        and _matches(text, failure.handler, failure.kind, failure.namespace, failure.name, failure.error, failure.place)
    ]
    return {"paging": Paging.of(found, query), "handlers": sorted({failure.handler for failure in shown.failures})}


def _newest_failures(shown: ShownOperator) -> list[Failure]:
    return list(shown.failures)[::-1]


def _show_tasks(shown: ShownOperator, query: Query) -> dict[str, Any]:
    """Show the tree of tasks; with a filter, those that match it, and those above them. There is a limit for each."""
    tasks = Tasks(shown.root)
    text = query.get("q", "")
    tree = _prune(tasks.tree, text) if text else tasks.tree
    return {"tree": None if tree is None else _cut(tree), "omitted": tasks.omitted, "open_all": bool(text)}


def _prune(node: dict[str, Any], text: str) -> dict[str, Any] | None:
    children = [kept for child in node.get("children", ()) if (kept := _prune(child, text)) is not None]
    call = node.get("call", {})
    values = [node.get(key, "") for key in ("name", "object", "at", "waits", "request")]
    if not children and not _matches(text, *values, call.get("handler", ""), call.get("object", "")):
        return None
    return {**node, "children": children}


def _cut(node: dict[str, Any]) -> dict[str, Any]:
    """Return a tree of tasks with the first children of each task, and how many more there are."""
    children = node.get("children", [])
    return {**node, "children": [_cut(child) for child in children[:ROWS]], "more": max(len(children) - ROWS, 0)}


#: The pages by their addresses, in the order of the navigation. Those without a title are reached from the others.
PAGES: Final[Mapping[str, Page]] = {
    "": Page("Overview", _show_overview),
    "kinds": Page("Kinds", _show_kinds),
    "objects": Page("Objects", _show_objects),
    "handlers": Page("Handlers", _show_handlers),
    "errors": Page("Errors", _show_errors),
    "tasks": Page("Tasks", _show_tasks),
    "object": Page("", _show_object),
}


def describe_page(name: str, shown: ShownOperator, query: Query) -> dict[str, Any] | None:
    """Return what the template of a page gets; None if there is nothing to show."""
    described = PAGES[name].describe(shown, query)
    return None if described is None else {**described, "operator": describe_state(shown.parts)}
