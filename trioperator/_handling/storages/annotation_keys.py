"""Keys of the annotations that store an operator's state, by Kopf's rules: either framework finds the other's state."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trioperator._model.body import Body

#: End of the keys of replicated objects.
REPLICATED = "-ofDRS"
_MAX_NAME = 63
_MAX_PREFIX = 253
_SAFE = str.maketrans({"/": ".", "<": "_", ">": "_"})
_INVALID = re.compile(r"[^A-Za-z0-9._-]")
_VALID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid for annotations; raise ValueError otherwise."""
    if not prefix:
        raise ValueError("An annotation prefix must not be empty: use a domain of yours, such as 'example.com'.")
    if len(prefix) > _MAX_PREFIX:
        raise ValueError(f"An annotation prefix has at most {_MAX_PREFIX} characters, not {len(prefix)}: {prefix!r}")
    return prefix


def is_replicated(body: Mapping[str, Any]) -> bool:
    """Return whether the object's annotations are copies of its owner's, as a ReplicaSet's are of its Deployment's."""
    raw = body._raw if type(body) is Body else body  # each access through the view costs another call
    if raw.get("kind") != "ReplicaSet":
        return False
    owners = (raw.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "Deployment" for owner in owners)


@functools.lru_cache(maxsize=4096)
def annotation_keys(prefix: str, name: str, *, v1: bool, replicated: bool = False) -> tuple[str, ...]:
    """Return the annotation keys for the handler or state *name*, in the order in which they are read.

    Kubernetes limits the length of a name: longer names are cut and end with a hash. The older rule *v1* includes the
    prefix in the limit. *replicated* objects use other keys than their owners.
    """
    if replicated:
        name = f"{name}{REPLICATED}"
    keys = [_key_v2(prefix, name)]
    if v1:
        keys.append(_key_v1(prefix, name))
    return tuple(dict.fromkeys(keys))


class AnnotationKeys:
    """Storage in annotations with a prefix."""

    prefix: str
    v1: bool

    def make_keys(self, key: str, *, body: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Return the annotation keys for the handler or state *key* of an object, the one that is read first first."""
        return annotation_keys(self.prefix, key, v1=self.v1, replicated=body is not None and is_replicated(body))


def _key_v2(prefix: str, name: str) -> str:
    safe = name.translate(_SAFE)
    if len(name) > _MAX_NAME:
        safe = _shorten(safe, _MAX_NAME, _suffix(name))
    return f"{prefix}/{_repair(safe, name)}"


def _key_v1(prefix: str, name: str) -> str:
    safe = name.translate(_SAFE)
    limit = _MAX_NAME - len(prefix) - 1
    if len(safe) > limit:
        safe = _shorten(safe, limit, _suffix(safe))
    return f"{prefix}/{_repair(safe, name)}"


def _shorten(text: str, limit: int, suffix: str) -> str:
    # With a long prefix the limit is negative and counts from the end, as in Kopf.
    return f"{text[: limit - len(suffix)]}{suffix}"


def _repair(safe: str, name: str) -> str:
    """Replace characters that the API server rejects, such as the colons of lambda ids; return valid names as they are.

    A hash keeps the replaced names distinct from each other and from valid names.
    """
    if len(safe) <= _MAX_NAME and _VALID.fullmatch(safe):
        return safe
    cleaned = _INVALID.sub("_", safe)
    return _shorten(cleaned if cleaned[:1].isalnum() else f"x{cleaned}", _MAX_NAME, _suffix(name))


def _suffix(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return "-" + base64.b64encode(digest, altchars=b"-.").decode().rstrip("=-.")
