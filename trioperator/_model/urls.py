"""URLs: of requests, and in messages without the user and the password that they may contain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

# Up to the last @, as a password with unescaped slashes makes an invalid URL, but is one all the same.
_USERINFO: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@", re.DOTALL)
_SAFE_PATH: Final = re.compile(r"/[\w./:@!$&'()*+,;=~%-]*", re.ASCII)


def mask_userinfo(url: str) -> str:
    """Return a URL, valid or not, with "…" in place of the user and the password, if it has any."""
    return _USERINFO.sub(r"\1…@", url)


def build_target(path: str, params: Mapping[str, str | int | bool | None] | None) -> str:
    """Return the encoded path and query of a request; parameters that are None are left out."""
    if _SAFE_PATH.fullmatch(path) is None:
        path = quote(path, safe="/:@!$&'()*+,;=~%-._")
    if not params:
        return path
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in params.items()
        if value is not None
    ]
    return f"{path}?{urlencode(pairs, quote_via=quote)}" if pairs else path
