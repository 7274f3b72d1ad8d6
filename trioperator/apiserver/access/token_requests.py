"""Tokens for service accounts: ``TokenRequest``, and Secrets with tokens."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..model.errors import bad_request, conflict, invalid
from ..model.kinds import Kind, subresource_kind
from ..model.status_causes import StatusCause
from ..store.state import State
from ..store.storage import Change, Stored, Table
from .tokens import AUDIENCE, Tokens

Object = dict[str, Any]
TOKEN_REQUEST: Final = subresource_kind("authentication.k8s.io", "v1", "TokenRequest")
_HOUR: Final = 3600
_MIN_LIFETIME: Final = 600  # seconds
_MAX_LIFETIME: Final = 2**32  # seconds
_BINDABLE: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_ACCOUNTS: Final = ("", "serviceaccounts")
_SECRETS: Final = ("", "secrets")
_SECRET_TYPE: Final = "kubernetes.io/service-account-token"
_NAME: Final = "kubernetes.io/service-account.name"
_UID: Final = "kubernetes.io/service-account.uid"


class TokenRequests:
    """Handler of ``TokenRequest``."""

    def __init__(self, state: State, tokens: Tokens) -> None:
        self._state = state
        self._tokens = tokens

    def answer(self, kind: Kind, namespace: str, name: str, asked: Object) -> Object:
        """Return the ``TokenRequest`` with a token of the service account. Raises ApiError for invalid requests."""
        meta = asked["metadata"]
        if (meta.get("name") or name) != name:
            text = f'Invalid value: "{meta["name"]}": must match the service account name if specified'
            raise invalid("TokenRequest", TOKEN_REQUEST.group, name, [StatusCause("metadata.name", text)])
        if (meta.get("namespace") or namespace) != namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(text)
        account = self._state.require(kind, namespace, name)
        defaults = {"audiences": [AUDIENCE], "expirationSeconds": _HOUR, "boundObjectRef": None}
        spec: Object = {**defaults, **(asked.get("spec") or {})}
        seconds = _checked(spec["expirationSeconds"])
        bound = self._bound(namespace, name, spec["boundObjectRef"])
        token = self._tokens.issue(account, audiences=spec["audiences"], seconds=seconds, bound=bound)
        end = self._state.now() + datetime.timedelta(seconds=seconds)
        return {
            "kind": "TokenRequest",
            "apiVersion": TOKEN_REQUEST.api_version,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": account.uid,
                "creationTimestamp": self._state.timestamp(),
            },
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    def _bound(self, namespace: str, account: str, ref: Mapping[str, Any] | None) -> Object:
        """Return the claim for the object that the token is bound to."""
        if ref is None:
            return {}
        plural = _BINDABLE.get(ref.get("kind") or "")
        if plural is None or ref.get("apiVersion") != "v1":
            group, _, version = str(ref.get("apiVersion") or "").rpartition("/")
            text = f"{group}/{version}, Kind={ref.get('kind') or ''}"
            raise bad_request(f"cannot bind token to object of type {text}")
        kind = self._state.catalog.get("", "v1", plural)
        assert kind is not None
        name = str(ref.get("name") or "")
        found = self._state.require(kind, namespace, name)
        if plural == "pods" and (found.obj.get("spec") or {}).get("serviceAccountName") != account:
            text = (
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
            raise bad_request(text)
        if ref.get("uid") and ref["uid"] != found.uid:
            text = f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record"
            shown = dataclasses.replace(kind, plural=kind.kind)
            raise conflict(shown, name, f"{text}. The object might have been deleted and then recreated")
        claim = {kind.singular: {"name": name, "uid": found.uid}}
        node = (found.obj.get("spec") or {}).get("nodeName") if plural == "pods" else None
        if node:
            stored = self._state.store.table(("", "nodes")).objects.get(node)
            claim["node"] = {"name": node, **({"uid": stored.uid} if stored else {})}
        return claim


def _checked(seconds: int) -> int:
    text = ""
    if seconds < _MIN_LIFETIME:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > _MAX_LIFETIME:
        text = "may not specify a duration larger than 2^32 seconds"
    if text:
        cause = StatusCause("spec.expirationSeconds", f"Invalid value: {seconds}: {text}")
        raise invalid("TokenRequest", TOKEN_REQUEST.group, "", [cause])
    return seconds


class TokenSecrets:
    """Controller of Secrets of the type ``kubernetes.io/service-account-token``.

    It fills them with tokens, and deletes them with their service account, as follow-ups of writes. *schedule* queues a
    follow-up; *certificate* returns the server's CA certificate.
    """

    def __init__(
        self,
        state: State,
        tokens: Tokens,
        *,
        schedule: Callable[[Callable[[], None]], None],
        certificate: Callable[[], bytes | None],
    ) -> None:
        self._state = state
        self._tokens = tokens
        self._schedule = schedule
        self._certificate = certificate
        state.store.on_change.append(self._observe)

    def _observe(self, table: Table, change: Change) -> None:
        if table.resource == _SECRETS:
            if change.new is not None and change.new.obj.get("type") == _SECRET_TYPE:
                self._schedule(lambda: self._fill(change.key))
        elif table.resource == _ACCOUNTS and change.new is None:
            self._schedule(lambda: self._drop(change.key))

    def _fill(self, key: str) -> None:
        secrets = self._state.store.table(_SECRETS)
        secret = secrets.objects.get(key)
        if secret is None or "deletionTimestamp" in secret.obj["metadata"]:
            return
        meta = secret.obj["metadata"]
        account = self._account(secret)
        if account is None:
            self._state.store.remove(secrets, key)
            return
        data = secret.obj.get("data") or {}
        if meta["annotations"].get(_UID) == account.uid and data.get("token"):
            return
        token = self._tokens.issue_lasting(account, meta["name"])
        values = {"namespace": meta["namespace"].encode(), "token": token.encode()}
        if (certificate := self._certificate()) is not None:
            values["ca.crt"] = certificate
        encoded = {field: base64.b64encode(value).decode() for field, value in sorted(values.items())}
        meta = {**meta, "annotations": {**meta["annotations"], _UID: account.uid}}
        self._state.store.put(secrets, key, {**secret.obj, "metadata": meta, "data": {**data, **encoded}})

    def _drop(self, account: str) -> None:
        namespace, _, name = account.partition("/")
        secrets = self._state.store.table(_SECRETS)
        for key in tuple(secrets.keys(f"{namespace}/")):
            secret = secrets.objects[key]
            annotations = secret.obj["metadata"].get("annotations") or {}
            is_token = secret.obj.get("type") == _SECRET_TYPE
            if is_token and annotations.get(_NAME) == name and self._account(secret) is None:
                self._state.store.remove(secrets, key)

    def _account(self, secret: Stored) -> Stored | None:
        """Return the service account of the Secret, or None if it does not exist."""
        meta = secret.obj["metadata"]
        annotations = meta.get("annotations") or {}
        table = self._state.store.table(_ACCOUNTS)
        account = table.objects.get(f"{meta['namespace']}/{annotations.get(_NAME)}")
        if account is None or annotations.get(_UID, account.uid) != account.uid:
            return None
        return account
