"""URLs in messages: without the user and the password that they may contain."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["mask_userinfo"]

# Up to the last @, as a password with unescaped slashes makes an invalid URL, but is one all the same.
_USERINFO: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@", re.DOTALL)


def mask_userinfo(url: str) -> str:
    """Return a URL, valid or not, with "…" in place of the user and the password, if it has any."""
    return _USERINFO.sub(r"\1…@", url)
