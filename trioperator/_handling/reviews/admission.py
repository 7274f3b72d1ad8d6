"""Admission: handlers that review writes before they are stored, their causes, and the verdict on a write. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from trioperator._handling.arguments.cause import INDEX_KWARGS, ObjectCause
from trioperator._handling.handlers.handler import ErrorsMode, ResourceHandler
from trioperator._handling.handlers.outcome import describe
from trioperator._model.body import Body
from trioperator._model.diff import diff, reduce_diff
from trioperator._model.fields import resolve
from trioperator._model.jsontypes import JsonObject, copy_json
from trioperator._model.patch import Patch, merge_as_json_patch
from trioperator.errors import AdmissionError, PermanentError, TemporaryError, UserCodeError

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
UserInfo: TypeAlias = Mapping[str, Any]
Headers: TypeAlias = Mapping[str, str]
SSLPeer: TypeAlias = Mapping[str, Any]

OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
#: Seconds that a review may take, unless the handler says otherwise: the longest time that Kubernetes allows.
DEFAULT_TIMEOUT: Final = 30
#: Share of the time of a review after which it is answered: before the API server gives up.
ANSWER_SHARE: Final = 0.93

ADMISSION_KWARGS = INDEX_KWARGS | {
    "diff",
    "dryrun",
    "headers",
    "new",
    "old",
    "operation",
    "sslpeer",
    "subresource",
    "userinfo",
    "warnings",
}


class WebhookType(enum.StrEnum):
    """Types of webhooks: what their handlers may do with a write."""

    VALIDATING = "validating"
    MUTATING = "mutating"


class AdmissionHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called before an object is stored or deleted, and may deny that or change the object.

    Without ``operations`` it is called for all. ``subresource`` is None for the object itself, ``"*"`` for that and all
    subresources. ``persistent=None`` is the default, which depends on the replicas of the operator. ``review_timeout``
    is in seconds. The other options go to the webhook configuration.
    """

    title: ClassVar[str] = "Webhook"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.PERMANENT
    is_routine: ClassVar[bool] = True

    type: WebhookType
    operations: frozenset[str] = frozenset()
    subresource: str | None = None
    persistent: bool | None = None
    side_effects: bool = False
    ignore_failures: bool = False
    review_timeout: int = DEFAULT_TIMEOUT
    namespace_selector: Mapping[str, Any] = {}
    match_conditions: Mapping[str, str] = {}
    match_policy: str = "Equivalent"
    reinvocation_policy: str = "Never"


class AdmissionCause(ObjectCause, kw_only=True, eq=False):
    """One write that is reviewed.

    ``old`` and ``new`` are the objects before and after it; ``raw`` is the new one, or the old one of a deletion.
    Handlers add to ``warnings``. Those with a field get its values as ``old`` and ``new``, or *whole* objects.
    """

    operation: str
    subresource: str | None
    dryrun: bool
    userinfo: UserInfo
    headers: Headers
    sslpeer: SSLPeer
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    warnings: list[str] = msgspec.field(default_factory=list)
    whole: bool = False

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = super()._make_kwargs()
        kwargs["operation"], kwargs["subresource"], kwargs["dryrun"] = self.operation, self.subresource, self.dryrun
        kwargs["userinfo"], kwargs["headers"], kwargs["sslpeer"] = self.userinfo, self.headers, self.sslpeer
        kwargs["warnings"] = self.warnings
        kwargs["old"] = None if self.old is None else Body(self.old, True)
        kwargs["new"] = None if self.new is None else Body(self.new, True)
        kwargs["diff"] = diff(self.old, self.new, private=True)
        return kwargs

    def kwargs_for(self, handler: ResourceHandler, patch: Patch) -> Mapping[str, Any]:
        """Return the keyword arguments of one handler, reduced to its field if it has one."""
        if self.whole or not handler.field:
            return super().kwargs_for(handler, patch)
        return {
            **self.kwargs,
            "patch": patch,
            "old": copy_json(resolve(self.old or {}, handler.field)),
            "new": copy_json(resolve(self.new or {}, handler.field)),
            "diff": reduce_diff(self.kwargs["diff"], handler.field),
            **self.indices,
        }


def reviews(handler: AdmissionHandler, operation: str, subresource: str | None) -> bool:
    """Return whether a handler reviews an operation on a subresource; its filters are not considered.

    Deletions cannot be changed: mutating handlers review them only if they review nothing else (as in Kopf).
    """
    if handler.operations and operation not in handler.operations:
        return False
    if operation == "DELETE" and handler.type is WebhookType.MUTATING and handler.operations != {"DELETE"}:
        return False
    return handler.subresource in ("*", subresource)


def build_json_patch(body: Mapping[str, Any], patch: Patch) -> list[JsonObject]:
    """Return the changes of handlers as a JSON patch of the reviewed object. Functions of the patch may raise.

    None removes a field. Sections of which nothing but removals is left are not added.
    """
    wanted = _prune(body, patch)
    if not patch.fns:
        return merge_as_json_patch(body, wanted)
    after = Patch(wanted, fns=patch.fns)
    return after.as_json_patch(body)


def _prune(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Drop removals from a merge patch where the object has nothing to remove, and what is empty without them."""
    pruned: dict[str, Any] = {}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            present = target.get(key)
            inner = _prune(present if isinstance(present, Mapping) else {}, value)
            if inner or not value:
                pruned[key] = inner
        elif value is not None or key in target:
            pruned[key] = value
    return pruned


def build_response(
    uid: str, errors: Sequence[BaseException], *, warnings: Iterable[object] = (), patch: bytes = b""
) -> dict[str, Any]:
    """Return the response of a review: one error decides, and the patch (JSON in base64) is for what is allowed."""
    response: dict[str, Any] = {"uid": uid, "allowed": not errors}
    if warned := [str(warning) for warning in warnings]:
        response["warnings"] = warned
    if errors:
        error = min(errors, key=_rank)
        code = error.code if isinstance(error, AdmissionError) else 500
        response["status"] = {"message": explain(error), "code": code}
    elif patch:
        response |= {"patch": patch.decode("ascii"), "patchType": "JSONPatch"}
    return response


def explain(error: BaseException) -> str:
    """Return what clients are told: the text of an unexpected error may quote what is not for them."""
    if isinstance(error, UserCodeError):
        return f"{error.what} has failed: see the log of the operator."
    is_meant = isinstance(error, AdmissionError | PermanentError | TemporaryError)
    return describe(error) if is_meant else "The webhook has failed: see the log of the operator."


def _rank(error: BaseException) -> int:
    kinds = (AdmissionError, PermanentError, TemporaryError, BaseException)
    return next(rank for rank, kind in enumerate(kinds) if isinstance(error, kind))
