"""The keys of annotations under which an operator keeps its state: Kopf's rules, so that either finds the other's."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["annotation_keys", "check_prefix", "is_replicated"]

_MAX_NAME = 63
_MAX_PREFIX = 253
_SAFE = str.maketrans({"/": ".", "<": "_", ">": "_"})
_INVALID = re.compile(r"[^A-Za-z0-9._-]")
_VALID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_prefix(prefix: str) -> str:
    """Give the prefix, if there can be annotations with it; else raise ValueError."""
    if not prefix:
        raise ValueError("Annotations need a prefix, such as a domain of yours.")
    if len(prefix) > _MAX_PREFIX:
        raise ValueError(f"A prefix of annotations has at most {_MAX_PREFIX} characters, not {len(prefix)}: {prefix!r}")
    return prefix


def is_replicated(body: Mapping[str, Any]) -> bool:
    """Tell whether the object's annotations are copied from its owner: those of a Deployment to its ReplicaSets."""
    if body.get("kind") != "ReplicaSet":
        return False
    owners = (body.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "Deployment" for owner in owners)


@functools.lru_cache(maxsize=4096)
def annotation_keys(prefix: str, name: str, *, v1: bool, replicated: bool = False) -> tuple[str, ...]:
    """Give the annotation keys for a handler or a state of that *name*: the one to be read first comes first.

    The length of a name is limited by Kubernetes; a longer one is cut and told apart by a hash. The older rule, *v1*,
    counted the prefix in. A *replicated* object needs keys that are not its owner's.
    """
    if replicated:
        name = f"{name}-ofDRS"
    keys = [_key_v2(prefix, name)]
    if v1:
        keys.append(_key_v1(prefix, name))
    return tuple(dict.fromkeys(keys))


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
    # For a prefix that is too long the limit is below zero, and counts from the end: so are Kopf's keys.
    return f"{text[: limit - len(suffix)]}{suffix}"


def _repair(safe: str, name: str) -> str:
    """Make a valid key of what the server would refuse, such as the colons of lambdas; the rest stays Kopf's.

    A hash keeps such names apart from each other and from valid ones.
    """
    if len(safe) <= _MAX_NAME and _VALID.fullmatch(safe):
        return safe
    cleaned = _INVALID.sub("_", safe)
    return _shorten(cleaned if cleaned[:1].isalnum() else f"x{cleaned}", _MAX_NAME, _suffix(name))


def _suffix(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return "-" + base64.b64encode(digest, altchars=b"-.").decode().rstrip("=-.")
