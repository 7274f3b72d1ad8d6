"""The CA of webhook servers, kept in a Secret: it survives restarts, and replicas share it."""

from __future__ import annotations

import base64
import binascii
import functools
from typing import Final

import msgspec
import trio

from trioperator.errors import ConfigError, ConflictError, NotFoundError
from trioperator.kube.client import Client
from trioperator.logs import get_logger
from trioperator.model.jsontypes import JsonObject
from trioperator.model.resource import Resource
from trioperator.web.certificates import build_authority, check_authority

__all__ = ["Authority", "load_authority"]

_SECRETS: Final = Resource("", "v1", "secrets")


class Authority(msgspec.Struct, frozen=True):
    """A CA: its certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


async def load_authority(client: Client, secret: str) -> Authority:
    """Return the CA in a Secret (``namespace/name``), which is created if there is none.

    Of several replicas that create it at the same time, one succeeds, and the others take its CA. Raises ConfigError
    if the Secret contains no CA, and what requests raise.
    """
    namespace, _, name = secret.partition("/")
    path = _SECRETS.get_path(namespace=namespace, name=name)
    try:
        return await _parse(await client.get(path), secret)
    except NotFoundError:
        made = Authority(*await trio.to_thread.run_sync(build_authority))
    try:
        await client.post(_SECRETS.get_path(namespace=namespace), _make_secret(name, namespace, made))
    except ConflictError:  # another replica was faster
        return await _parse(await client.get(path), secret)
    get_logger("trioperator.web.admission").info("Created a CA for webhooks in the Secret %s.", secret)
    return made


def _make_secret(name: str, namespace: str, authority: Authority) -> JsonObject:
    data = {"tls.crt": authority.certificate, "tls.key": authority.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
    }


async def _parse(secret: JsonObject, name: str) -> Authority:
    data = secret.get("data") or {}
    try:
        authority = Authority(*(base64.b64decode(data[key], validate=True) for key in ("tls.crt", "tls.key")))
        await trio.to_thread.run_sync(functools.partial(check_authority, authority.certificate, authority.key))
    except (KeyError, TypeError, binascii.Error, ValueError) as error:
        raise ConfigError(
            f"The Secret {name} contains no CA: tls.crt and tls.key must be its certificate and its private key. Delete"
            " the Secret to have a new CA created."
        ) from error
    return authority
