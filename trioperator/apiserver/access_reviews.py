"""Questions about access that are asked as objects: who am I, may I, may they, what may I, whose token is this.

Nothing of it is stored: the object comes back with its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .access import Access
from .attributes import Attributes
from .kinds import Kind
from .rbac import join_problems
from .refusals import Cause, bad_request, invalid, unknown_resource
from .state import State
from .tokens import AUDIENCE
from .users import User

__all__ = ["AccessReviews"]

Object = dict[str, Any]
_GROUP: Final = "authorization.k8s.io"
_RESOURCE: Final = "spec.resourceAttributes"
_PATH: Final = "spec.nonResourceAttributes"


class AccessReviews:
    """Answers the questions."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    def answer(self, kind: Kind, namespace: str, asked: Object, user: User) -> Object:
        """Return the object with its answer; refuse what makes no sense."""
        if kind.namespaced and not namespace:
            raise unknown_resource()
        meta = {field: value for field, value in asked["metadata"].items() if value}
        if kind.namespaced:
            meta["namespace"] = namespace
        spec = _mapping(kind, asked, "spec")
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
                return _result(kind, meta, spec, self._decide(kind, spec, user))
            case "subjectaccessreviews":
                _check_empty(meta)
            case _:
                _check_empty({field: value for field, value in meta.items() if field != "namespace"})
                _check_place(spec, namespace)
        _check_subject(spec)
        return _result(kind, meta, spec, self._decide(kind, spec, _subject(spec)))

    def _review_token(self, spec: Mapping[str, Any]) -> Object:
        token = str(spec.get("token") or "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = tuple(map(str, spec.get("audiences") or ())) or (AUDIENCE,)
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

    def _decide(self, kind: Kind, spec: Object, user: User) -> Object:
        decision = self._access.authorizer.decide(user, _attributes(kind, spec))
        return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _result(kind: Kind, meta: Object, spec: Mapping[str, Any] | None, status: Object) -> Object:
    result: Object = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    if spec is not None:
        result["spec"] = spec
    return {**result, "status": status}


def _mapping(kind: Kind, obj: Mapping[str, Any], field: str, parent: str = "") -> Object:
    value = obj.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        place = f"{parent or kind.kind}.{field}"
        text = f"json: cannot unmarshal into Go struct field {place}"
        raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}')
    return value


def _attributes(kind: Kind, spec: Object) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        _refuse(_PATH, f"Invalid value: {_go_path(path)}: cannot be specified in combination with resourceAttributes")
    if resource is None and path is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        _refuse(_RESOURCE, f"Invalid value: null: {text}")
    if path is not None:
        asked = _mapping(kind, spec, "nonResourceAttributes", "spec")
        return Attributes(verb=_text(asked, "verb"), path=_text(asked, "path"), is_resource=False)
    asked = _mapping(kind, spec, "resourceAttributes", "spec")
    return Attributes(
        verb=_text(asked, "verb"),
        group=_text(asked, "group"),
        version=_text(asked, "version"),
        resource=_text(asked, "resource"),
        subresource=_text(asked, "subresource"),
        namespace=_text(asked, "namespace"),
        name=_text(asked, "name"),
    )


def _text(asked: Mapping[str, Any], field: str) -> str:
    return str(asked.get(field) or "")


def _subject(spec: Mapping[str, Any]) -> User:
    extra = spec.get("extra") if isinstance(spec.get("extra"), dict) else None
    return User(
        name=_text(spec, "user"),
        uid=_text(spec, "uid"),
        groups=tuple(map(str, spec.get("groups") or ())),
        extra={key: tuple(map(str, values or ())) for key, values in (extra or {}).items()},
    )


# -- what makes no sense ----------------------------------------------------------------------------------------------


def _refuse(field: str, text: str) -> None:
    raise invalid("", _GROUP, "", [Cause(field, text)])


def _check_empty(meta: Mapping[str, Any]) -> None:
    if meta:
        _refuse("metadata", f"Invalid value: {msgspec.json.encode(meta).decode()}: must be empty")


def _check_subject(spec: Mapping[str, Any]) -> None:
    if not spec.get("user") and not spec.get("groups"):
        _refuse("spec.user", 'Invalid value: "": at least one of user or group must be specified')


def _check_place(spec: Mapping[str, Any], namespace: str) -> None:
    path, resource = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if path is not None:
        _refuse(_PATH, f"Invalid value: {_go_path(path)}: disallowed on this kind of request")
    own = _text(resource, "namespace") if isinstance(resource, dict) else namespace
    if own != namespace:
        _refuse(f"{_RESOURCE}.namespace", f'Invalid value: "{own}": must match metadata.namespace')


def _go_path(path: Any) -> str:
    asked = path if isinstance(path, dict) else {}
    return msgspec.json.encode({"Path": _text(asked, "path"), "Verb": _text(asked, "verb")}).decode()
