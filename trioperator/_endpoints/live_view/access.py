"""Access to the live view: hosts, the token, and sessions of browsers. Knows no web framework.

Requests for other hosts are rejected, so that no website can read the live view by a name of its own that leads here
(DNS rebinding). Programs send the token as a bearer token. Browsers exchange it for a session in a cookie, which other
websites cannot use: it is ``SameSite=Strict``, and actions must come from a page of the live view itself, as sites on
other ports of this host count as the same site.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

import trio

#: Seconds after which a browser has to send the token again.
SESSION_SECONDS: Final = 12 * 3600
# Sessions at a time; the oldest one gives way.
_MAX_SESSIONS: Final = 64


def is_loopback(host: str) -> bool:
    """Check whether a host is on the loopback interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_same_origin(host: str, *, origin: str | None, site: str | None) -> bool:
    """Check whether a browser's request comes from a page of this *host*, by its headers Origin and Sec-Fetch-Site.

    Without either of them, it does not: all browsers send one of them with a form.
    """
    if origin is not None:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False
    return site == "same-origin"


class Access:
    """Decides on requests: by their host, their token, and their session. With an empty *token*, anybody may look.

    *hosts* are served besides the loopback interface's.
    """

    def __init__(self, token: str | None, hosts: Collection[str] = ()) -> None:
        self._token = token or None
        self._hosts = frozenset(host.lower() for host in hosts)
        self._sessions: dict[bytes, float] = {}  # when they end, by the digests of their cookies, oldest first

    @property
    def has_token(self) -> bool:
        """Whether the live view needs a token, and has actions."""
        return self._token is not None

    def serves(self, header: str) -> bool:
        """Check whether a Host header is one of this server."""
        name, _, port = header.rpartition(":")
        host = name if port.isdigit() else header
        return bool(host) and (is_loopback(host) or host.lower() in self._hosts)

    def has_bearer(self, authorization: str) -> bool:
        """Check whether an Authorization header has the token."""
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and self._is_token(given)

    def log_in(self, token: str) -> str | None:
        """Return the cookie of a new session; None for a wrong token."""
        if not self._is_token(token):
            return None
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = trio.current_time() + SESSION_SECONDS
        return cookie

    def has_session(self, cookie: str | None) -> bool:
        """Check whether a cookie belongs to a session that has not ended."""
        return cookie is not None and self._sessions.get(_digest(cookie), 0.0) > trio.current_time()

    def log_out(self, cookie: str | None) -> None:
        """End a session."""
        self._sessions.pop(_digest(cookie or ""), None)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(_digest(given), _digest(self._token))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
