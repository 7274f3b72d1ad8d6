"""Paginated lists and the start of watches, with the semantics of ``resourceVersion`` and ``resourceVersionMatch``."""

from __future__ import annotations

import base64
import binascii
import bisect
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator._model.shard_ranges import ShardRanges
from trioperator.errors import ApiError

from ..model.errors import StalePageError, bad_request, expired, invalid
from ..model.go_numbers import parse_int64, parse_uint64
from ..model.kinds import Kind
from ..model.quoting import quote
from ..model.selectors import FieldSelector, parse_fields, parse_labels
from ..model.status_causes import StatusCause, unsupported
from ..store.state import State
from ..store.storage import Expired, Stored, Table
from ..webhooks.conversion import Converter
from .views import View
from .watch import Lines, Selection, Watch, WatchOptions

# Field selectors of built-in kinds, besides metadata.name and metadata.namespace.
_FIELDS: Final[Mapping[tuple[str, str], Collection[str]]] = {
    ("", "events"): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("", "namespaces"): ("status.phase",),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
}
_REGARDING: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
# Field selectors of Events in the group events.k8s.io, and the paths of these fields in the stored objects.
_EVENT_FIELDS: Final[Mapping[str, str]] = {
    **{f"regarding.{field}": f"involvedObject.{field}" for field in _REGARDING},
    "reason": "reason",
    "reportingController": "reportingComponent",
    "type": "type",
}
_STORED_PATHS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("source",): ("source", "component"),
    ("status", "successful"): ("status", "succeeded"),
}
_DEFAULTS: Final[Mapping[tuple[str, ...], str]] = {
    ("spec", "hostNetwork"): "false",
    ("spec", "unschedulable"): "false",
    ("status", "replicas"): "0",
    ("status", "succeeded"): "0",
}
_COMMON_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
_MATCH: Final = "resourceVersionMatch"
_MATCHES: Final = frozenset({"", "Exact", "NotOlderThan"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list, with the metadata of the list."""

    items: Sequence[Stored]
    meta: dict[str, Any]


class Reader:
    """The reads of one cluster. It ignores shard selectors unless it *knows_shards*."""

    def __init__(self, state: State, converter: Converter) -> None:
        self.knows_shards = True
        self._state = state
        self._converter = converter

    def select(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Selection:
        """Parse the selectors of the query."""
        shards = query.get("shardSelector", "") if self.knows_shards else ""
        return Selection(
            prefix=f"{namespace}/" if namespace else "",
            labels=parse_labels(query.get("labelSelector", "")),
            fields=_parse_fields(kind, query.get("fieldSelector", "")),
            shards=_parse_shards(shards) if shards else None,
        )

    async def list(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Page:
        """Return the page that the query selects."""
        selection = self.select(kind, namespace, query)
        limit = _parse_number(query, "limit")
        _parse_number(query, "timeoutSeconds")
        _check_list_options(query)
        table = self._state.table(kind)
        token = query.get("continue", "")
        if query.get("resourceVersion") == "0" and not token:
            limit = 0  # any version will do: the real server returns the whole list from its cache
        if token:
            objects, revision, start, since = self._resume_list(table, token, query)
        else:
            objects, revision = self._start_list(table, query, limited=limit > 0)
            start, since = "", self._state.now().timestamp()
        # Only the newest state has its keys sorted.
        keys = table.keys(selection.prefix)
        if objects is not table.objects:
            keys = sorted(key for key in objects if key.startswith(selection.prefix))
        remaining = keys[bisect.bisect_right(keys, start) if start else 0 :]
        candidates = remaining[:limit] if limit > 0 and selection.matches_everything else remaining
        items, examined = _select_page(
            await self._convert(kind, [objects[key] for key in candidates]), selection, limit
        )
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if 0 < limit == len(items) and examined < len(remaining):
            meta["continue"] = _encode_token(revision, remaining[examined - 1], at=since)
            if selection.matches_everything:
                meta["remainingItemCount"] = len(remaining) - examined
        if selection.shards is not None and kind.custom is None:  # Kubernetes 1.36 does not say so for custom kinds
            meta["shardInfo"] = {"selector": query["shardSelector"].strip()}
        return Page(items=items, meta=meta)

    async def _convert(self, kind: Kind, found: Sequence[Stored]) -> Sequence[Stored]:
        """Return the stored objects in the version of the kind."""
        if kind.custom is None:
            return found
        await self._converter.prepare(kind, found)
        return [self._converter.shown(kind, stored) for stored in found]

    def _start_list(self, table: Table, query: Mapping[str, str], *, limited: bool) -> tuple[dict[str, Stored], int]:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        current = self._state.store.revision
        if version in {"", "0"}:
            return table.objects, current
        revision = _revision(version)
        self._state.store.check_version(revision)
        if match == "Exact" or (limited and not match):
            state = table.state_at(revision)
            if isinstance(state, Expired):
                raise expired(f"The resourceVersion for the provided list is too old: {revision} ({state.oldest})")
            return state, revision
        return table.objects, current

    def _resume_list(
        self, table: Table, token: str, query: Mapping[str, str]
    ) -> tuple[dict[str, Stored], int, str, float]:
        revision, start, since = _decode_token(token)
        if query.get("resourceVersion", "") not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        if revision == -1:
            return table.objects, self._state.store.revision, start, self._state.now().timestamp()
        state = table.state_at(revision)
        is_old = self._state.now().timestamp() - since > self._state.store.history_age  # as if history was compacted
        if is_old or isinstance(state, Expired):
            raise _stale_token(start)
        return state, revision, start, since

    def watch(self, kind: Kind, namespace: str, query: Mapping[str, str], view: View) -> Watch:
        """Start the watch that the query describes."""
        selection = self.select(kind, namespace, query)
        version = query.get("resourceVersion", "")
        _check_watch_options(query)
        initial = read_flag(query, "sendInitialEvents")
        timeout = float(_parse_number(query, "timeoutSeconds")) or 1800 + self._state.random.random() * 1800
        revision: int | None = None
        not_older = 0
        if version not in {"", "0"}:
            wanted = read_version(version)
            revision, not_older = (None, wanted) if initial else (wanted, 0)
        elif "sendInitialEvents" in query and not initial:
            revision = self._state.store.revision
        options = WatchOptions(
            revision=revision,
            timeout=timeout,
            bookmarks=read_flag(query, "allowWatchBookmarks"),
            initial_end=initial,
            not_older=not_older,
        )
        return Watch(self._state, Lines(kind, view), selection, options, converter=self._converter)


def _parse_fields(kind: Kind, text: str) -> FieldSelector:
    if kind.custom is not None:
        selectable = kind.custom.selectable
        return parse_fields(text, lambda field: field in _COMMON_FIELDS or field in selectable)
    aliases = _EVENT_FIELDS if kind.group == "events.k8s.io" else {}
    own = aliases or _FIELDS.get(kind.resource, ())

    def supported(field: str) -> bool:
        if field in _COMMON_FIELDS or field in own:
            return True
        if not own:
            known = '"metadata.name", "metadata.namespace"'
            raise bad_request(f"{quote(field)} is not a known field selector: only {known}")
        return False

    terms = []
    for path, value, equal in parse_fields(text, supported).terms:
        place = tuple(aliases.get(".".join(path), ".".join(path)).split("."))
        terms.append((_STORED_PATHS.get(place, place), value, equal))
    return FieldSelector(tuple(terms), _DEFAULTS)


def _parse_shards(text: str) -> ShardRanges:
    try:
        return ShardRanges.parse(text)
    except ValueError as error:
        raise ApiError.of(f"invalid shard selector: {error}", status=500) from None


def _select_page(found: Sequence[Stored], selection: Selection, limit: int) -> tuple[Sequence[Stored], int]:
    """Return the selected objects up to the limit, and how many objects were examined."""
    if selection.matches_everything:
        return found, len(found)
    items = []
    for examined, stored in enumerate(found, 1):
        if selection.matches(stored):
            items.append(stored)
            if len(items) == limit:
                return items, examined
    return items, len(found)


def _parse_number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return parse_int64(text)
    except ValueError as error:
        raise bad_request(str(error)) from None


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """Return whether the option is set: to any value but ``false`` and ``0``, as on the real server."""
    return query.get(name, "false").lower() not in {"false", "0"}


def read_version(version: str) -> int:
    """Parse a resource version. Raises ApiError if it is not a number."""
    try:
        return parse_uint64(version)
    except ValueError as error:
        raise ApiError.of(f"resourceVersion: Invalid value: {quote(version)}: {error}", status=500) from None


def _revision(version: str) -> int:
    try:
        return read_version(version)
    except ApiError as error:
        raise bad_request(f"invalid resource version: {error.message}") from None


def _check_list_options(query: Mapping[str, str]) -> None:
    """Reject invalid combinations of list options; like the real server, report all causes at once."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    causes = []
    if match and query.get("continue"):
        causes.append(_forbidden("resourceVersionMatch is forbidden when continue is provided"))
    if match and not version:
        causes.append(_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if match not in _MATCHES:
        causes.append(unsupported(_MATCH, match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        causes.append(_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(_forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents"))
    _raise_invalid(causes)


def _check_watch_options(query: Mapping[str, str]) -> None:
    """Reject invalid combinations of watch options; like the real server, report all causes at once."""
    match, has_initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    causes = []
    if match and not has_initial:
        causes.append(_forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if has_initial and match != "NotOlderThan":
        causes.append(_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match not in {"", "NotOlderThan"}:
        causes.append(unsupported(_MATCH, match, ("NotOlderThan",)))
    _raise_invalid(causes)


def _forbidden(text: str, field: str = _MATCH) -> StatusCause:
    return StatusCause(field, f"Forbidden: {text}", "FieldValueForbidden")


def _raise_invalid(causes: Sequence[StatusCause]) -> None:
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)


def _encode_token(revision: int, last: str, *, at: float = math.inf) -> str:
    content: dict[str, Any] = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"/{last}\0"}
    if math.isfinite(at):
        content["at"] = at
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


class _Token(msgspec.Struct, frozen=True):
    """Content of a continue token: a resource version, the key after which the list continues, and when it began."""

    rv: int
    start: str
    at: float = math.inf


_decode_content: Final = msgspec.json.Decoder(_Token).decode


def _decode_token(token: str) -> tuple[int, str, float]:
    try:
        content = _decode_content(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, RecursionError, binascii.Error) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    return content.rv, content.start.removeprefix("/").removesuffix("\0"), content.at


def _stale_token(start: str) -> ApiError:
    text = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    return StalePageError(text, token=_encode_token(-1, start))
