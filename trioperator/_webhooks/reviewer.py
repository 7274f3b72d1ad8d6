"""Admission reviews, answered by the handlers: the function that webhook servers call."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from trioperator._handling import guard
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.calls.storable import describe_unserializable
from trioperator._handling.declaring.registry import find_declared, select_admission_handlers
from trioperator._handling.reviews.admission import (
    ANSWER_SHARE,
    OPERATIONS,
    AdmissionCause,
    AdmissionHandler,
    Headers,
    SSLPeer,
    WebhookType,
    build_json_patch,
    build_response,
    explain,
)
from trioperator._handling.reviews.admission_review import ReviewRequest, build_review, parse_review
from trioperator._handling.reviews.webhook_configuration import make_segments
from trioperator._http.asgi import current_limit
from trioperator._logs import get_logger, object_logger
from trioperator._model.jsontypes import JsonObject, encode_json
from trioperator._model.patch import Patch
from trioperator._model.resource import Resource, Selection, select_resources
from trioperator._runtime.watching.index_gate import MissingIndices
from trioperator._webhooks.other_versions import OtherVersion
from trioperator.errors import AdmissionError, ReviewError, UserCodeError
from trioperator.settings import AdmissionSettings

_logger = get_logger("trioperator.webhooks")

# Share of the time of a handler whose failures are ignored: the rest is for others, and for the answer.
_IGNORED_SHARE: Final = 0.95
# Seconds to wait for the first discovery of resource kinds, and for indices.
_PATIENCE: Final = 5.0
# Webhooks without a handler that are warned of, and characters of their ids: anybody may ask for any.
_MAX_UNKNOWN: Final = 100
_MAX_SHOWN: Final = 100


class _Reviewed:
    """The resource kinds of the cluster, and which of them the handlers review (``by_handler``).

    ``known`` is set when they are known; ``problems`` are sentences about handlers.
    """

    def __init__(self, handlers: Sequence[AdmissionHandler]) -> None:
        self.known = trio.Event()
        self.problems: tuple[str, ...] = ()
        self.by_handler: dict[AdmissionHandler, frozenset[Resource]] = {}
        self._handlers = handlers
        self._resources: Mapping[tuple[str, str, str], Resource] = {}  # by group, version and plural
        self._undiscovered: frozenset[str] = frozenset()

    def update(self, resources: Collection[Resource], undiscovered: frozenset[str]) -> bool:
        """Take the resource kinds of the cluster. Return whether that changes which of them the handlers review.

        There may be others in the API groups that are *undiscovered*.
        """
        self._resources = {(each.group, each.version, each.plural): each for each in resources}
        by_handler: dict[AdmissionHandler, frozenset[Resource]] = {}
        problems: dict[str, None] = {}
        for handler in self._handlers:
            selection = _select(handler, resources)
            by_handler[handler] = selection.resources
            if selection.problem:
                problems[selection.problem] = None
                # Somebody's new kind of the same name must not end the reviews of the one that was meant so far.
                by_handler[handler] |= self.by_handler.get(handler, frozenset()) & frozenset(resources)
        for problem in problems.keys() - set(self.problems):
            _logger.warning("%s", problem)
        self.problems = tuple(problems)
        changed = (by_handler, undiscovered) != (self.by_handler, self._undiscovered)
        self.by_handler, self._undiscovered = by_handler, undiscovered
        self.known.set()
        return changed

    def selects(self, handler: AdmissionHandler, resource: Resource) -> bool:
        """Return whether a handler reviews a resource: in any version, unless it has chosen one.

        The preferred version may have changed a moment ago, and configurations by hand may name all of them.
        """
        selected = self.by_handler[handler]
        if resource.group in self._undiscovered:
            selected |= _select(handler, [resource]).resources
        if resource in selected or handler.selector.version is not None:
            return resource in selected
        return any((each.group, each.plural) == (resource.group, resource.plural) for each in selected)

    def find(self, request: ReviewRequest) -> Resource:
        """Return the resource of a review. Raises ReviewError if it is unknown."""
        wanted = request.resource
        resource = self._resources.get((wanted.group, wanted.version, wanted.resource))
        if resource is None and wanted.group in self._undiscovered:
            kind = (request.object or request.old_object or {}).get("kind")
            return Resource(wanted.group, wanted.version, wanted.resource, kind=kind)
        if resource is None:
            text = f"The resource {wanted.resource}.{wanted.version}.{wanted.group} is unknown."
            raise ReviewError(text, status=404)
        return resource


class Reviewer:
    """Reviews of writes by admission handlers; a :class:`WebhookFn`.

    *find_memo* returns a function for the memo of an object by its uid; for an object that is not watched or does not
    exist yet, it is a new one. *missing* are the indices that are not complete.
    """

    def __init__(
        self,
        handlers: Sequence[AdmissionHandler],
        invoker: Invoker,
        *,
        indices: Indices,
        missing: MissingIndices,
        find_memo: Callable[[str | None], Callable[[], Any]],
        settings: AdmissionSettings,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._segments = make_segments(dict.fromkeys(handler.id for handler in handlers))
        self._invoker = invoker
        self._indices, self._missing = indices, missing
        self._declared = {handler: find_declared(handler, frozenset(indices)) for handler in handlers if indices}
        self._find_memo = find_memo
        self._unknown: set[str] = set()  # webhooks without a handler that were warned of
        self.reviewed = _Reviewed(handlers)

    def handles(self, webhook: str | None) -> bool:
        """Return whether reviews for the id of a webhook are answered; those without a handler are warned of."""
        if webhook is None or webhook in self._segments or webhook in self._segments.values():
            return True
        self._report_unknown(webhook)
        return self._settings.allow_unknown

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
        other: OtherVersion | None = None,
    ) -> JsonObject:
        """Answer an admission review by the handlers with the id *webhook*, or by all of them without it.

        If that is the webhook of an *other* version of the operator, all handlers of its type answer.
        """
        parsed = parse_review(request)
        if not self.reviewed.known.is_set():
            with trio.move_on_after(_PATIENCE):
                await self.reviewed.known.wait()
        resource = self.reviewed.find(parsed)
        if other is None:
            handlers = [h for h in self._handlers if webhook in (None, h.id, self._segments[h.id])]
        else:
            handlers = [h for h in self._handlers if h.type is other.type and resource in self.reviewed.by_handler[h]]
            if other.is_newer and not handlers:
                raise ReviewError("A newer version of the operator reviews this resource.", status=404)
        if not handlers and other is None:
            self._report_unknown(webhook)
            if not self._settings.allow_unknown:
                raise ReviewError("There is no handler for this webhook.", status=404)
        handlers = [handler for handler in handlers if self.reviewed.selects(handler, resource)]
        if webhook is not None and other is None and not self._settings.allow_unknown:
            _check_reviewed(handlers, parsed)
        await self._wait_indexed(handlers)
        cause = self._make_cause(parsed, resource, headers=headers, sslpeer=sslpeer)
        token = current_cause.set(cause)
        try:
            return await self._respond(functools.partial(_build_answer, request, parsed.uid), cause, handlers)
        finally:
            current_cause.reset(token)

    async def _wait_indexed(self, handlers: Iterable[AdmissionHandler]) -> None:
        """Wait until the indices that handlers and their filters declare are complete: before, they would allow more.

        Raises ReviewError if that takes too long.
        """
        names = frozenset[str]().union(*map(self._declared.__getitem__, handlers)) if self._declared else frozenset()
        if not names:
            return
        with trio.move_on_after(_PATIENCE):
            await self._missing.wait_complete(names)
            return
        raise ReviewError("The indices are not complete yet.", status=503)

    def _report_unknown(self, webhook: str | None) -> None:
        """Warn of a webhook without a handler, once."""
        shown = f"{webhook or '':.{_MAX_SHOWN}}"
        if shown in self._unknown or len(self._unknown) == _MAX_UNKNOWN:
            return
        self._unknown.add(shown)
        verdict = "allowed" if self._settings.allow_unknown else "answered with HTTP 404"
        _logger.warning("There is no handler for the webhook %r: its reviews are %s.", shown, verdict)

    def _make_cause(
        self, request: ReviewRequest, resource: Resource, *, headers: Headers | None, sslpeer: SSLPeer | None
    ) -> AdmissionCause:
        raw = request.object or request.old_object or {}
        metadata = raw.get("metadata") or {}
        ref = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": metadata.get("name") or request.name,
            "uid": metadata.get("uid"),
            "namespace": metadata.get("namespace") or request.namespace,
        }
        return AdmissionCause(
            resource=resource,
            raw=raw,
            get_memo=self._find_memo(None if request.operation == "CREATE" else metadata.get("uid")),
            logger=object_logger(ref),
            indices=self._indices,
            operation=request.operation,
            subresource=request.sub_resource or None,
            dryrun=bool(request.dry_run),
            userinfo=request.user_info,
            headers=dict(headers or {}),
            sslpeer=sslpeer or {},
            old=request.old_object,
            new=request.object,
            whole=self._settings.GIVES_WHOLE_OBJECTS,
        )

    async def _respond(
        self, answer: Callable[..., JsonObject], cause: AdmissionCause, handlers: Sequence[AdmissionHandler]
    ) -> JsonObject:
        """Call the handlers that match, one after another, and return the answer."""
        errors: list[BaseException] = []
        patch = Patch()
        try:
            chosen = select_admission_handlers(handlers, cause)
        except UserCodeError as error:
            cause.logger.error("%s. The write is denied.", error, exc_info=error.__cause__)
            return answer([error], warnings=cause.warnings)
        for handler in chosen:
            failure = await self._call(handler, cause, patch, answer)
            if failure is not None and handler.ignore_failures:
                cause.warnings.append(f"{handler} has failed, which is ignored: {explain(failure)}")
            elif failure is not None:
                errors.append(failure)
        changes = b""
        if patch and not errors:
            try:
                changes = _encode_patch(patch, cause, chosen)
            except UserCodeError as error:
                cause.logger.error("%s. The write is denied.", error, exc_info=error.__cause__)
                errors.append(error)
        return answer(errors, warnings=cause.warnings, patch=changes)

    async def _call(
        self, handler: AdmissionHandler, cause: AdmissionCause, patch: Patch, answer: Callable[..., JsonObject]
    ) -> BaseException | None:
        """Call a handler, and return its error. What ends the request before its time is over needs no scope here."""
        seconds, limit = handler.review_timeout * ANSWER_SHARE, current_limit.get()
        if limit is None or limit.seconds > seconds or handler.ignore_failures:
            with trio.move_on_after(seconds * _IGNORED_SHARE if handler.ignore_failures else seconds):
                return await self._invoke(handler, cause, patch)
            return _report_late(handler, cause, handler.review_timeout)
        try:
            return await self._invoke(handler, cause, patch)
        except BaseException:  # it is cancelled, because of the limit or anything else
            limit.make_late = functools.partial(_answer_late, handler, cause, limit.seconds / ANSWER_SHARE, answer)
            raise

    async def _invoke(self, handler: AdmissionHandler, cause: AdmissionCause, patch: Patch) -> BaseException | None:
        own = Patch()
        kwargs = cause.kwargs_for(handler, own)
        outcome = await self._invoker.invoke(handler, kwargs, attempt=Attempt(0, None), logger=cause.logger)
        if outcome.error is None:
            _merge(patch, own, handler, cause)
        return outcome.error


def _build_answer(request: Mapping[str, Any], uid: str, errors: Sequence[BaseException], **rest: Any) -> JsonObject:
    return build_review(request, build_response(uid, errors, **rest))


def _answer_late(
    handler: AdmissionHandler, cause: AdmissionCause, seconds: float, answer: Callable[..., JsonObject]
) -> bytes | None:
    """Return the denial of a write whose handler was cancelled; None if its warnings are no text."""
    error = _report_late(handler, cause, seconds)
    try:
        return msgspec.json.encode(answer([error], warnings=cause.warnings))
    except Exception:
        _logger.exception("The answer to a late review cannot be sent.")
        return None


def _report_late(handler: AdmissionHandler, cause: AdmissionCause, seconds: float) -> AdmissionError:
    text = f"{handler} has not answered within {seconds:g} seconds."
    cause.logger.error("%s", text)
    return AdmissionError(text, code=504)


def _check_reviewed(handlers: Collection[AdmissionHandler], request: ReviewRequest) -> None:
    """Raise ReviewError for a write that no handler of a webhook is for: its rules are of another release, or wrong.

    A handler allows what is allowed. A mutating handler may leave a deletion alone.
    """
    subresource = request.sub_resource or None
    for handler in handlers:
        if handler.subresource in ("*", subresource) and request.operation in (handler.operations or OPERATIONS):
            return
    what = f"{request.resource.resource}/{subresource}" if subresource else request.resource.resource
    text = f"The handlers of this webhook do not review the operation {request.operation} on {what}."
    raise ReviewError(text, status=404)


def _merge(patch: Patch, own: Patch, handler: AdmissionHandler, cause: AdmissionCause) -> None:
    """Add the changes of a handler to what the handlers before it have changed; drop what a webhook must not make."""
    if own and (handler.type is not WebhookType.MUTATING or cause.new is None):
        why = "it deletes the object" if cause.new is None else "validating webhooks cannot change objects"
        cause.logger.warning("The changes by %s are dropped: %s.", handler, why)
    elif own:
        _update(patch, own)
        patch.fns += own.fns


def _update(patch: dict[str, Any], own: Mapping[str, Any]) -> None:
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(patch.get(key), dict):
            _update(patch[key], value)
        else:
            patch[key] = dict(value) if isinstance(value, Mapping) else value


def _encode_patch(patch: Patch, cause: AdmissionCause, handlers: Collection[AdmissionHandler]) -> bytes:
    """Return the changes as a JSON patch in base64. Raises UserCodeError."""
    names = ", ".join(map(str, handlers))
    operations = guard.call("The patch of {}", names, build_json_patch, cause.raw, patch)
    try:
        encoded = encode_json(operations)
    except Exception as error:
        raise UserCodeError(f"The patch of {names} ({describe_unserializable(dict(patch))})", error) from error
    return base64.b64encode(encoded) if operations else b""


def _select(handler: AdmissionHandler, resources: Collection[Resource]) -> Selection:
    """Select the resource kinds that a handler reviews. A function of the user's that fails selects none."""
    try:
        return guard.call(
            "The selector {}", handler.selector, select_resources, handler.selector, resources, watched=False
        )
    except UserCodeError as error:
        return Selection(problem=f"{error}. Its handlers are not called.")
