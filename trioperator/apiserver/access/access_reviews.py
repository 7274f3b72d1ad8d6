"""Access reviews: SelfSubjectReview, SubjectAccessReview and its variants, SelfSubjectRulesReview, TokenReview.

Reviews are not stored: the response is the object with its status. The objects are already decoded by their schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..model.errors import bad_request, invalid, unknown_resource
from ..model.kinds import Kind
from ..model.status_causes import StatusCause
from ..model.user import User
from ..store.state import State
from .access_control import AccessControl
from .attributes import Attributes
from .rbac import join_problems
from .tokens import AUDIENCE

Object = dict[str, Any]
_GROUP: Final = "authorization.k8s.io"
_RESOURCE: Final = "spec.resourceAttributes"
_PATH: Final = "spec.nonResourceAttributes"


class AccessReviews:
    """Handler of access reviews."""

    def __init__(self, state: State, access: AccessControl) -> None:
        self._state = state
        self._access = access

    def answer(self, kind: Kind, namespace: str, asked: Object, user: User) -> Object:
        """Return the review with its status. Raises InvalidError."""
        if kind.namespaced and not namespace:
            raise unknown_resource()
        meta = {field: value for field, value in asked["metadata"].items() if value}
        if kind.namespaced:
            meta["namespace"] = namespace
        spec: Object = asked.get("spec") or {}
        match kind.plural:
            case "selfsubjectreviews":
                meta = {"creationTimestamp": self._state.timestamp()}
                return _result(kind, meta, None, {"userInfo": user.describe()})
            case "tokenreviews":
                return _result(kind, meta, spec, self._review_token(spec))
            case "selfsubjectrulesreviews":
                _check_empty(meta)
                return _result(kind, meta, {}, self._list_rules(str(spec.get("namespace") or ""), user))
            case "selfsubjectaccessreviews":
                _check_empty(meta)
                return _result(kind, meta, spec, self._decide(spec, user))
            case "subjectaccessreviews":
                _check_empty(meta)
            case _:
                _check_empty({field: value for field, value in meta.items() if field != "namespace"})
                _check_place(spec, namespace)
        _check_subject(spec)
        return _result(kind, meta, spec, self._decide(spec, _subject(spec)))

    def _review_token(self, spec: Mapping[str, Any]) -> Object:
        token = str(spec.get("token") or "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = tuple(spec.get("audiences") or ()) or (AUDIENCE,)
        user, audiences, problem = self._access.authenticator.review(token, wanted)
        if user is None:
            return {"user": {}, "error": problem}
        return {"authenticated": True, "user": user.describe(), "audiences": list(audiences)}

    def _list_rules(self, namespace: str, user: User) -> Object:
        if not namespace:
            raise bad_request("no namespace on request")
        grants = self._access.authorizer.grants(user, namespace)
        resources, paths = [], []
        for rule in (rule for grant in grants for rule in grant.rules):
            if rule.resources:
                found = {"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}
                resources.append(found | ({"resourceNames": rule.names} if rule.names else {}))
            if rule.urls:
                paths.append({"verbs": rule.verbs, "nonResourceURLs": rule.urls})
        problems = join_problems(grants)
        status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
        return status | ({"evaluationError": problems} if problems else {})

    def _decide(self, spec: Object, user: User) -> Object:
        decision = self._access.authorizer.decide(user, _attributes(spec))
        return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _result(kind: Kind, meta: Object, spec: Mapping[str, Any] | None, status: Object) -> Object:
    result: Object = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    if spec is not None:
        result["spec"] = spec
    return {**result, "status": status}


def _attributes(spec: Object) -> Attributes:
    resource: Object | None = spec.get("resourceAttributes")
    path: Object | None = spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        raise _invalid(
            _PATH, f"Invalid value: {_go_path(path)}: cannot be specified in combination with resourceAttributes"
        )
    if path is not None:
        return Attributes(verb=_text(path, "verb"), path=_text(path, "path"), is_resource=False)
    if resource is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid(_RESOURCE, f"Invalid value: null: {text}")
    return Attributes(
        verb=_text(resource, "verb"),
        group=_text(resource, "group"),
        version=_text(resource, "version"),
        resource=_text(resource, "resource"),
        subresource=_text(resource, "subresource"),
        namespace=_text(resource, "namespace"),
        name=_text(resource, "name"),
    )


def _text(asked: Mapping[str, Any], field: str) -> str:
    return str(asked.get(field) or "")


def _subject(spec: Mapping[str, Any]) -> User:
    return User(
        name=_text(spec, "user"),
        uid=_text(spec, "uid"),
        groups=tuple(spec.get("groups") or ()),
        extra={key: tuple(values) for key, values in (spec.get("extra") or {}).items()},
    )


def _invalid(field: str, text: str) -> Exception:
    return invalid("", _GROUP, "", [StatusCause(field, text)])


def _check_empty(meta: Mapping[str, Any]) -> None:
    if meta:
        raise _invalid("metadata", f"Invalid value: {msgspec.json.encode(meta).decode()}: must be empty")


def _check_subject(spec: Mapping[str, Any]) -> None:
    if not spec.get("user") and not spec.get("groups"):
        raise _invalid("spec.user", 'Invalid value: "": at least one of user or group must be specified')


def _check_place(spec: Mapping[str, Any], namespace: str) -> None:
    path, resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if path is not None:
        raise _invalid(_PATH, f"Invalid value: {_go_path(path)}: disallowed on this kind of request")
    own = namespace if resource is None else _text(resource, "namespace")
    if own != namespace:
        raise _invalid(f"{_RESOURCE}.namespace", f'Invalid value: "{own}": must match metadata.namespace')


def _go_path(path: Mapping[str, Any]) -> str:
    return msgspec.json.encode({"Path": _text(path, "path"), "Verb": _text(path, "verb")}).decode()
