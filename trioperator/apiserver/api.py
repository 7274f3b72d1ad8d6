"""The Kubernetes API: from a request to its response.

It never raises for what a client sends: every error response is a ``Status``. Internal errors are a ``Status``, too,
with the traceback in the log only.
"""

from __future__ import annotations

import datetime
import email.utils
import functools
import logging
from typing import Final

import msgspec

from trioperator.errors import ApiError

from .access.token_requests import TOKEN_REQUEST
from .bodies.decoding import WriteOptions, decode_body, decode_object, read_write_options
from .bodies.delete_options import parse_delete_options, parse_nested_options
from .bodies.patching import SentPatch
from .bodies.protobuf import MEDIA_TYPE, decode_protobuf
from .documents import read_document
from .gate import Gate
from .model.errors import bad_request, method_not_allowed, render_status, request_too_large, unknown_resource
from .model.kinds import Kind
from .model.messages import Request, RequestLog, RequestRecord, Response, warning_headers
from .reading.pod_logs import PodLogs, read_log_options
from .reading.reader import Reader, read_version
from .reading.views import View, negotiate
from .routing import PageNotFoundError, Router, Target, subresource_verbs, verb_of
from .store.state import State, trio_seconds
from .store.storage import Stored
from .webhooks.admission import AdmissionWebhooks
from .webhooks.client import WebhookClient
from .webhooks.conversion import Converter
from .writing import scale_subresource
from .writing.binding import BINDING, Binder
from .writing.definition_registration import DefinitionRegistration
from .writing.deleter import Deleter
from .writing.eviction import EVICTION, Evictor
from .writing.followups import FollowUps
from .writing.garbage_collection import GarbageCollection
from .writing.namespace_termination import NamespaceTermination
from .writing.scale_writer import ScaleWriter
from .writing.system_deleter import SystemDeleter
from .writing.writer import Writer, Written

_log: Final = logging.getLogger(__name__)
_PAGE_NOT_FOUND: Final = b"404 page not found\n"
_AUTH_ERRORS: Final = frozenset({401, 403})
_IN_ALL_NAMESPACES: Final = frozenset({"list", "watch"})


class _Subresources:
    """The subresources that are not parts of their objects, and how they are read and written."""

    def __init__(self, state: State, writer: Writer, deleter: Deleter, webhooks: AdmissionWebhooks) -> None:
        self.pod_logs = PodLogs(state)
        self._state = state
        self._scale_writer = ScaleWriter(writer)
        self._binder = Binder(state, writer, webhooks)
        self._evictor = Evictor(state, writer, deleter, webhooks)

    async def create(self, target: Target, request: Request) -> Response:
        """Evict a Pod, or assign it to a node."""
        options, place = read_write_options("create", request), (target.namespace, target.name)
        if target.subresource == "binding":
            sent = decode_body(BINDING, request, options)
            return Response.of(await self._binder.bind(target.kind, place, sent, options), 201)
        sent = decode_body(EVICTION, request, options)
        deletion = parse_nested_options(sent, request)
        return Response.of(await self._evictor.evict(target.kind, place, sent, options=options, deletion=deletion), 201)

    def read_log(self, target: Target, request: Request) -> Response:
        """Return the log of a Pod."""
        options = read_log_options(target.name, request.query)
        log = self.pod_logs.read(self._state.require(target.kind, target.namespace, target.name), options)
        return Response(200 if log else 204, log, "text/plain")  # as for Pods that have no node yet

    async def write_scale(self, target: Target, request: Request, options: WriteOptions) -> Response:
        """Write the scale of an object."""
        kind, place = target.kind, (target.namespace, target.name)
        self._state.require(kind, *place)
        written = await self._scale_writer.write(kind, place, request, options)
        return Response.of(scale_subresource.read_scale(kind, _stored(kind, written)))


class Api:
    """The API of one cluster."""

    def __init__(
        self, state: State, log: RequestLog, *, body_limit: int, gate: Gate, webhook_client: WebhookClient
    ) -> None:
        self.state = state
        self.gate = gate
        self._router = Router(state.catalog)
        self.followups = FollowUps()
        self.converter = Converter(state, webhook_client)
        self._webhook_client = webhook_client
        self.reader = Reader(state, self.converter)
        webhooks = AdmissionWebhooks(state, webhook_client, self.converter)

        async def settle() -> None:
            await system.settle()

        self.writer = Writer(state, settle=settle, admission=webhooks, converter=self.converter)
        self.deleter = Deleter(state, settle=settle, admission=webhooks, converter=self.converter)
        system = SystemDeleter(state, webhooks, self.deleter, follow=self.followups.run)
        self.subresources = _Subresources(state, self.writer, self.deleter, webhooks)
        self._connect_followups(system)
        self.writer.guard = gate.guard
        self.writer.check_creation = gate.check_creation
        self.body_limit = body_limit
        self._log = log

    def _connect_followups(self, system: SystemDeleter) -> None:
        garbage = GarbageCollection(self.state, self.followups, delete=system.delete)
        namespaces = NamespaceTermination(self.state, self.followups, delete=system.delete)
        registration = DefinitionRegistration(self.state, self.followups, self.deleter)
        # The finalizers of a namespace are served after its objects are deleted.
        self.state.store.on_change += [
            garbage.observe,
            namespaces.observe,
            registration.observe,
            garbage.observe_finalizers,
        ]

    async def handle(self, request: Request) -> Response:
        """Return the response to the request."""
        target: Target | None = None
        try:
            self.gate.access.admit(request)
            if len(request.body) > self.body_limit:
                raise request_too_large(self.body_limit)
            target = self._router.resolve(request.path)
            if request.content_type.startswith(MEDIA_TYPE):
                _read_protobuf(request)
            response = (
                read_document(self.state.catalog, self._router, request)
                if target is None
                else await self._serve(target, request)
            )
        except ApiError as error:
            response = _error_response(error, request)
            if error.retry_after is not None:
                response.headers.append(("Retry-After", f"{error.retry_after:.0f}"))
            if target is None and error.status in _AUTH_ERRORS:
                target = self._find(request.path)
        except PageNotFoundError:
            response = Response(404, _PAGE_NOT_FOUND, "text/plain; charset=utf-8")
        except Exception as error:  # noqa: BLE001 -- a client gets a response, whatever happens
            _log.exception("The embedded API server failed to handle %s %s.", request.method, request.path)
            text = f"Internal error occurred: {type(error).__name__}"
            response = Response.of(render_status(ApiError.of(text, status=500, reason="InternalError")), 500)
        _adapt(response, request)
        response.headers.append(("Date", _format_date(self.state.now().replace(microsecond=0))))
        await self.state.saved()  # no response tells of a change that could still be lost
        self._record(request, target, response)
        return response

    async def aclose(self) -> None:
        """Close idle connections to webhooks."""
        await self._webhook_client.aclose()

    def _record(self, request: Request, target: Target | None, response: Response) -> None:
        record = RequestRecord(
            time=trio_seconds(),
            method=request.method,
            path=request.path,
            query=request.query,
            user_agent=request.user_agent,
            status=response.status,
            verb=verb_of(request, target),
            resource=target.kind.qualified if target else "",
            subresource=target.subresource if target else "",
            namespace=target.namespace if target else "",
            name=target.name if target else "",
            content_type=request.content_type,
            size=len(request.body),
            user=request.user.name,
            annotations=dict(request.annotations),
        )
        self._log.add(record)

    def _find(self, path: str) -> Target | None:
        """Return the target of a request that failed authentication or authorization, if it has one."""
        try:
            return self._router.resolve(path)
        except (ApiError, PageNotFoundError):
            return None

    async def _serve(self, target: Target, request: Request) -> Response:
        verb = verb_of(request, target)
        if target.kind.custom is not None and target.kind.custom.deprecation:
            request.warnings.append(target.kind.custom.deprecation)
        if target.kind.is_virtual and target.name:
            raise unknown_resource()
        if target.kind.namespaced and not target.namespace and verb not in _IN_ALL_NAMESPACES:
            if target.kind.is_virtual:
                raise unknown_resource()
            raise PageNotFoundError if target.kind.custom else method_not_allowed()
        if not verb or verb not in (target.kind.verbs if not target.subresource else subresource_verbs(target)):
            raise method_not_allowed(target.kind, verb)
        view, is_yaml = negotiate(request.accept, include=request.query.get("includeObject", ""), now=self.state.now)
        match verb:
            case "create" if target.kind.is_virtual or target.subresource == "token":
                response = self._review(target, request)
            case "create" if target.subresource in {"binding", "eviction"}:
                response = await self.subresources.create(target, request)
            case "get" if target.subresource == "log":
                return self.subresources.read_log(target, request)
            case "watch":
                return self._watch(target, request, view)
            case "get" | "list":
                response = await self._read(target, request, view)
            case "delete" | "deletecollection":
                response = await self._delete(target, request, view)
            case _:
                response = await self._write(target, request, verb, view)
        if is_yaml:
            return _as_yaml(response)
        return response

    def _review(self, target: Target, request: Request) -> Response:
        """Answer a review or a token request, which is created but not stored."""
        if request.accept and all("as=" in clause for clause in request.accept.split(",")):
            raise ApiError.of(_PLAIN_ONLY, status=406, reason="NotAcceptable")  # there is no table of it
        kind = TOKEN_REQUEST if target.subresource else target.kind
        review = decode_object(kind, decode_body(kind, request), read_write_options("create", request))
        if target.subresource:
            answer = self.gate.token_requests.answer(target.kind, target.namespace, target.name, review)
        else:
            answer = self.gate.reviews.answer(kind, target.namespace, review, request.user)
        return Response.of(answer, 201)

    def _watch(self, target: Target, request: Request, view: View) -> Response:
        if request.upgrade == "websocket":
            return Response(200, b"")  # complete, so that a client does not wait for its end, and asks without
        return Response(200, self.reader.watch(target.kind, target.namespace, request.query, view))

    async def _read(self, target: Target, request: Request, view: View) -> Response:
        if not target.name:
            page = await self.reader.list(target.kind, target.namespace, request.query)
            return Response(200, view.render_list(target.kind, page.items, page.meta))
        if version := request.query.get("resourceVersion", ""):
            self.state.store.check_version(read_version(version))
        stored = self.state.require(target.kind, target.namespace, target.name)
        stored = await self.converter.show(target.kind, stored)
        if target.subresource == "scale":
            scale_subresource.require_replicas(target.kind, stored)
            return Response.of(scale_subresource.read_scale(target.kind, stored))
        return Response(200, view.render(target.kind, stored))

    async def _write(self, target: Target, request: Request, verb: str, view: View) -> Response:
        options = read_write_options(verb, request)
        if target.subresource == "scale":
            response = await self.subresources.write_scale(target, request, options)
        else:
            written = await self._write_object(target, request, verb, options)
            response = self._written(target.kind, written, view)
        return response

    async def _write_object(self, target: Target, request: Request, verb: str, options: WriteOptions) -> Written:
        kind, place = target.kind, (target.namespace, target.name)
        if verb == "patch":
            patch = SentPatch(request.media_type, request.body)
            return await self.writer.patch(kind, place, patch, options, subresource=target.subresource)
        sent = decode_body(kind, request, options)
        if verb == "create":
            return await self.writer.create(kind, target.namespace, sent, options)
        return await self.writer.replace(kind, place, sent, options, subresource=target.subresource)

    async def _delete(self, target: Target, request: Request, view: View) -> Response:
        options = parse_delete_options(request)
        if target.name:
            result = await self.deleter.delete(target.kind, target.namespace, target.name, options)
            return self._written(target.kind, result, view) if isinstance(result, Written) else Response.of(result)
        page = await self.reader.list(target.kind, target.namespace, request.query)
        await self.deleter.delete_collection(target.kind, page.items, options)
        meta = {field: value for field, value in page.meta.items() if field == "resourceVersion"}
        return Response(200, view.render_list(target.kind, page.items, meta))

    @staticmethod
    def _written(kind: Kind, written: Written, view: View) -> Response:
        status = 201 if written.created else 200
        if view.is_plain and written.raw.startswith(kind.head):
            return Response(status, written.raw)
        return Response(status, view.render(kind, _stored(kind, written)))


_PLAIN_ONLY: Final = (
    "only the following media types are accepted:"
    " application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
# Bytes of JSON that are written as YAML with a line for each value, which takes a second for a megabyte. Larger
# responses stay as they are: JSON is YAML, too.
_MAX_BLOCK_YAML: Final = 256 * 1024


def _stored(kind: Kind, written: Written) -> Stored:
    meta = written.obj["metadata"]
    return Stored(kind.key(meta.get("namespace", ""), meta["name"]), written.obj, 0)


def _read_protobuf(request: Request) -> None:
    """Replace a protobuf body by JSON."""
    try:
        content = decode_protobuf(request.body) if request.body else None
    except ValueError as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from None
    request.content_type = "application/json"
    request.body = b"" if content is None else msgspec.json.encode(content)


@functools.lru_cache(maxsize=1)
def _format_date(second: datetime.datetime) -> str:
    return email.utils.format_datetime(second, usegmt=True)


def _adapt(response: Response, request: Request) -> None:
    """Add the warnings for the client, and indent JSON for people."""
    response.headers.extend(warning_headers(request.warnings))
    if request.is_pretty and response.content_type == "application/json" and isinstance(response.body, bytes):
        response.body = msgspec.json.format(response.body)


def _error_response(error: ApiError, request: Request) -> Response:
    response = Response.of(render_status(error), error.status)
    return _as_yaml(response) if request.accept.startswith("application/yaml") else response


def _as_yaml(response: Response) -> Response:
    import yaml

    assert isinstance(response.body, bytes)
    response.content_type = "application/yaml"
    if len(response.body) <= _MAX_BLOCK_YAML:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        response.body = yaml.dump(msgspec.json.decode(response.body), Dumper=dumper, sort_keys=True).encode()
    return response
