"""Validation of ConfigMaps, Secrets, volume claims, storage classes and leases. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trioperator._model.quantities import quantity_value

from ...model.finalizers import is_standard_finalizer
from ...model.metadata import check_key
from ...model.status_causes import StatusCause, invalid_value, required, unsupported

Object = Mapping[str, Any]

_DATA_LIMIT: Final = 1_048_576  # bytes
_TOO_LONG: Final = f"Too long: may not be more than {_DATA_LIMIT} bytes"
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SECRET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def check_config_map(obj: Object) -> Iterable[StatusCause]:
    binary = obj.get("binaryData") or {}
    for key in obj.get("data") or ():
        yield from _check_data_key(f"data[{key}]", key)
        if key in binary:
            yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from _check_data_key(f"binaryData[{key}]", key)
    texts = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    if texts + _decoded_size(binary) > _DATA_LIMIT:
        yield StatusCause("[]", _TOO_LONG, "FieldValueTooLong")


def _decoded_size(data: Mapping[str, str]) -> int:
    """Return the total size of the base64-decoded values, in bytes."""
    return sum(len(value) * 3 // 4 - value.count("=") for value in data.values())


def _check_data_key(path: str, key: str) -> Iterable[StatusCause]:
    if not _KEY.fullmatch(key):
        yield invalid_value(path, key, _KEY_TEXT)


def check_secret(obj: Object) -> Iterable[StatusCause]:
    data = obj.get("data") or {}
    for key in data:
        yield from _check_data_key(f"data[{key}]", key)
    if _decoded_size(data) > _DATA_LIMIT:
        yield StatusCause("data", _TOO_LONG, "FieldValueTooLong")
    account = "kubernetes.io/service-account.name"
    if obj["type"] == "kubernetes.io/service-account-token":
        if not (obj["metadata"].get("annotations") or {}).get(account):
            yield required(f"metadata.annotations[{account}]")
    elif obj["type"] == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        yield required("data[username]")
        yield required("data[password]")
    else:
        for key in _SECRET_KEYS.get(obj["type"], ()):
            if key not in data:
                yield required(f"data[{key}]")


def check_claim(obj: Object) -> Iterable[StatusCause]:
    return check_claim_spec(obj["spec"], "spec")


def check_claim_spec(spec: Object, path: str) -> Iterable[StatusCause]:
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in spec.get("accessModes") or ():
        if mode not in _ACCESS_MODES:
            yield unsupported(f"{path}.accessModes", mode, _ACCESS_MODES)
    storage = (spec["resources"].get("requests") or {}).get("storage")
    if storage is None:
        yield required(f"{path}.resources[storage]")
    elif quantity_value(storage) <= 0:
        yield invalid_value(f"{path}.resources[storage]", storage, "must be greater than zero")


def check_storage_class(obj: Object) -> Iterable[StatusCause]:
    if not obj.get("provisioner"):
        yield required("provisioner")


def check_namespace(obj: Object) -> Iterable[StatusCause]:
    # Only the path of a new namespace has no index.
    is_new = not obj["metadata"].get("resourceVersion")
    for at, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        path = "spec.finalizers" if is_new else f"spec.finalizers[{at}]"
        yield from check_key(path, name)
        if not is_standard_finalizer(name):
            yield invalid_value(path, name, "name is neither a standard finalizer name nor is it fully qualified")


def check_lease(obj: Object) -> Iterable[StatusCause]:
    seconds = obj["spec"].get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = obj["spec"].get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
