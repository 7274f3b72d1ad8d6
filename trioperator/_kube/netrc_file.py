"""Users and passwords of hosts in ``~/.netrc``, or in the file that ``$NETRC`` names, as for curl."""

from __future__ import annotations

import netrc
import os

from trioperator.errors import ConfigError


def find_login(host: str) -> tuple[str, str] | None:
    """Return the user and the password for a host, None if there are none. Raises ConfigError for an invalid file."""
    path = os.path.expanduser(os.environ.get("NETRC") or "~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not valid UTF-8"
        raise ConfigError(f"Cannot read the file {path}: {reason}") from exc
    except netrc.NetrcParseError as exc:  # its message may quote a password
        raise ConfigError(f"The file {path} is invalid in line {exc.lineno}.") from None
    if found is None:
        return None
    login, account, password = found
    return login or account or "", password or ""
