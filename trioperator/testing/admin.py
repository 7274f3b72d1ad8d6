"""The admin endpoint of a test cluster, for test suites in any language: below ``/trioperator`` of the API server.

It restores objects, injects faults, adjusts the clock, and shows the requests. Each request needs its token.
"""

from __future__ import annotations

import contextlib
import hmac
import inspect
import itertools
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import steady_now
from trioperator.apiserver import Cluster, RequestRecord
from trioperator.apiserver.model.errors import render_status
from trioperator.apiserver.model.messages import Request, Response
from trioperator.errors import ApiError, ConfigError

from .adjustable_clock import AdjustableClock
from .fault_handler import FaultHandler
from .faults import Fault
from .plans import FaultPlan, FaultRule

if TYPE_CHECKING:
    from trioperator.apiserver.store.storage import Snapshot

PREFIX: Final = "/trioperator"
#: Number of requests that the audit keeps.
LOG_LIMIT: Final = 10_000
_MAX_SNAPSHOTS: Final = 100
_MIN_TOKEN: Final = 16  # characters
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_YEAR, _LAST_YEAR = 31_556_952, 9000  # its seconds, and the last one: not much later, there are no dates
_STATUS: Final = re.compile(r"[0-9]{3}")
_FAULTS: Final = (
    *("refuse", "reset", "lose_answer", "stall", "status", "answer", "delay", "half_body", "close", "break_off"),
    *("half_line", "garbage", "error_event", "silence", "lag", "duplicate", "stale"),
)
_UNSET: Final = msgspec.UNSET
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class FaultOrder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A fault, by the name of its method of :class:`Fault`, with the arguments of that and of ``FaultPlan.add()``."""

    fault: str
    code: Annotated[int, msgspec.Meta(ge=200, le=599)] | msgspec.UnsetType = _UNSET
    message: str | msgspec.UnsetType = _UNSET
    reason: str | msgspec.UnsetType = _UNSET
    retry_after: _Seconds | msgspec.UnsetType = _UNSET
    body: str | msgspec.UnsetType = _UNSET
    text: str | msgspec.UnsetType = _UNSET
    lines: _Count | msgspec.UnsetType = _UNSET
    before: _Seconds | msgspec.UnsetType = _UNSET
    after: _Seconds | msgspec.UnsetType = _UNSET
    seconds: _Seconds | msgspec.UnsetType = _UNSET
    times: _Count | msgspec.UnsetType = _UNSET
    skip: _Count | msgspec.UnsetType = _UNSET
    chance: Annotated[float, msgspec.Meta(ge=0, le=1)] | msgspec.UnsetType = _UNSET
    method: str | msgspec.UnsetType = _UNSET
    path: str | msgspec.UnsetType = _UNSET
    watch: bool | msgspec.UnsetType = _UNSET
    verb: str | list[str] | msgspec.UnsetType = _UNSET
    resource: str | msgspec.UnsetType = _UNSET
    subresource: str | msgspec.UnsetType = _UNSET
    namespace: str | msgspec.UnsetType = _UNSET
    name: str | msgspec.UnsetType = _UNSET

    def add_to(self, plan: FaultPlan) -> FaultRule:
        """Add the fault to the plan, and return the rule. Raises ValueError for unknown faults and wrong arguments."""
        if self.fault not in _FAULTS:
            raise ValueError(f"there is no fault {self.fault!r}: choose from {', '.join(_FAULTS)}")
        given: dict[str, Any] = msgspec.to_builtins(self)
        make = getattr(Fault, given.pop("fault"))
        own = {key: given.pop(key) for key in _ARGUMENTS & given.keys()}
        signature = inspect.signature(make)
        try:
            signature.bind(**own)
        except TypeError as error:
            known = ", ".join(signature.parameters) or "no arguments"
            raise ValueError(f"the fault {self.fault!r} takes {known}: {error}") from None
        if "path" in given:
            re.compile(given["path"])
        own |= {key: own[key].encode() for key in ("body", "text") if key in own}
        return plan.add(make(**own), **given)


# Of faults; the other fields are for the plan.
_ARGUMENTS: Final = frozenset(
    {"code", "message", "reason", "retry_after", "body", "text", "lines", "before", "after", "seconds"}
)


class TimeOrder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Adjustment of the clock: by how many seconds to advance it, and at which rate it runs from then on."""

    advance: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0
    # Largest rate: above it, a timeout of an hour would be shorter in real time than a delay of a busy machine.
    rate: Annotated[float, msgspec.Meta(ge=0.01, le=60)] | None = None


class AdminHandler:
    """Handler of the API of a cluster, with the admin endpoint below ``/trioperator``."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.body_limit = cluster.api.body_limit
        self._cluster = cluster
        self._token = token.encode()
        self._plan = FaultPlan()
        self._rules: dict[str, FaultRule] = {}
        self._numbers = itertools.count(1)
        self._api = FaultHandler(cluster.api, self._plan)
        self._snapshots: dict[str, Snapshot] = {}
        self.keep_start()

    def keep_start(self) -> None:
        """Take the current objects as the state that a reset restores."""
        self._start = self._cluster.snapshot()

    async def aclose(self) -> None:
        """Close idle connections to webhooks."""
        await self._api.aclose()

    async def handle(self, request: Request) -> Response:
        """Return the response to the request: of the admin endpoint, or of the API, with its faults."""
        path = request.path
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            return await self._api.handle(request)
        try:
            scheme, _, sent = request.authorization.partition(" ")
            if not (hmac.compare_digest(sent.encode(), self._token) and scheme.lower() == "bearer"):
                raise ApiError.of("The admin endpoint needs its own token.", status=401, reason="Unauthorized")
            return Response.of(await self._answer(request, path.removeprefix(PREFIX).strip("/").split("/")))
        except ApiError as error:
            return Response.of(render_status(error), error.status)

    async def _answer(self, request: Request, parts: list[str]) -> Any:
        match request.method, *parts:
            case "POST", "reset":
                return await self._reset()
            case _, "snapshots", *rest:
                return await self._answer_snapshots(request, rest)
            case _, "faults", *rest:
                return self._answer_faults(request, rest)
            case "GET", "requests":
                return self._select(request.query)
            case "DELETE", "requests":
                return self._cluster.requests.clear()
            case "GET" | "POST", "time":
                return _adjust_time(request)
        raise _unknown(request)

    async def _reset(self) -> None:
        self._forget_faults()
        if isinstance(clock := trio.lowlevel.current_clock(), AdjustableClock):
            clock.adjust(rate=1.0)
        await self._cluster.restore(self._start)
        self._cluster.requests.clear()

    # -- snapshots ------------------------------------------------------------------------------------------------

    async def _answer_snapshots(self, request: Request, parts: list[str]) -> Any:
        match request.method, *parts:
            case ("GET",):
                return sorted(self._snapshots)
            case "PUT", name:
                if not _NAME.fullmatch(name):
                    raise _bad("the name of a snapshot has up to 63 letters, digits, dashes, dots and underscores")
                if len(self._snapshots) >= _MAX_SNAPSHOTS and name not in self._snapshots:
                    raise _bad(f"there are {_MAX_SNAPSHOTS} snapshots: delete some")
                self._snapshots[name] = self._cluster.snapshot()
                return None
            case ("DELETE", name) | ("POST", name, "restore"):
                if name not in self._snapshots:
                    raise ApiError.of(f"There is no snapshot {name!r}.", status=404, reason="NotFound")
                if request.method == "DELETE":
                    del self._snapshots[name]
                else:
                    await self._cluster.restore(self._snapshots[name])
                return None
        raise _unknown(request)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _answer_faults(self, request: Request, parts: list[str]) -> Any:
        match request.method, *parts:
            case ("GET",):
                return [_show(number, rule) for number, rule in self._rules.items()]
            case ("POST",):
                try:
                    rule = _decode(request, FaultOrder).add_to(self._plan)
                except (ValueError, re.error) as error:
                    raise _bad(str(error)) from None
                number = str(next(self._numbers))
                self._rules[number] = rule
                return _show(number, rule)
            case ("DELETE",):
                return self._forget_faults()
            case "DELETE", number if number in self._rules:
                return self._plan.remove(self._rules.pop(number))
        raise _unknown(request)

    def _forget_faults(self) -> None:
        self._plan.clear()
        self._rules.clear()

    # -- requests -------------------------------------------------------------------------------------------------

    def _select(self, query: Mapping[str, str]) -> list[RequestRecord]:
        if unknown := query.keys() - _FILTERS:
            raise _bad(f"requests have no {', '.join(sorted(unknown))}: choose from {', '.join(sorted(_FILTERS))}")
        wanted: dict[str, object] = dict(query)
        if "status" in query:
            wanted["status"] = int(query["status"]) if _STATUS.fullmatch(query["status"]) else -1
        return self._cluster.requests.select(**wanted)


_FILTERS: Final = frozenset(
    {"method", "path", "user_agent", "status", "verb", "resource", "subresource", "namespace", "name", "user"}
)


def _show(number: str, rule: FaultRule) -> dict[str, Any]:
    return {"id": number, "fault": rule.fault.kind, "seen": rule.seen, "hits": rule.hits, "for": rule.selection}


def _adjust_time(request: Request) -> dict[str, Any]:
    clock = trio.lowlevel.current_clock()
    if request.method == "POST":
        order = _decode(request, TimeOrder)
        if not isinstance(clock, AdjustableClock):
            raise _bad("the clock of this cluster cannot be adjusted")
        if steady_now().year + order.advance / _YEAR > _LAST_YEAR:
            raise _bad(f"the clock of this cluster ends with the year {_LAST_YEAR}")
        clock.adjust(advance=order.advance, rate=order.rate)
    return {"now": steady_now().isoformat(), "rate": getattr(clock, "rate", 1.0)}


def _decode(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad(f"the body cannot be used: {error}") from None


def _bad(text: str) -> ApiError:
    return ApiError.of(f"{text[0].upper()}{text[1:]}.", status=400, reason="BadRequest")


def _unknown(request: Request) -> ApiError:
    text = f"The admin endpoint does not serve {request.method} {request.path}."
    return ApiError.of(text, status=404, reason="NotFound")


def read_token(path: str | os.PathLike[str]) -> str:
    """Return the token in the file; a missing file is created with a new token, for its owner only.

    Raises ConfigError if the file cannot be used, or the token is too short.
    """
    try:
        if not os.path.exists(path):
            _make_token(path)
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"The file for the token of the admin endpoint cannot be used: {error}.") from None
    if len(token) < _MIN_TOKEN:
        raise ConfigError(
            f"The token of the admin endpoint in {path} has fewer than {_MIN_TOKEN} characters: use a longer one."
        )
    return token


def _make_token(path: str | os.PathLike[str]) -> None:
    """Create the file atomically, with its content: several servers may share it, and start at the same time."""
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=os.path.dirname(os.path.abspath(path))) as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
