"""Names of operators' processes, as peers and leases show them. Their form is Kopf's ("Peering")."""

from __future__ import annotations

import datetime
import os
import socket


def make_identity(*, manual: bool = False) -> str:
    """Return a name of this process: ``$POD_ID``, or the user, the host, the time and a random suffix.

    With *manual* it is only the user and the host: the same for all commands of one person.
    """
    if pod := os.environ.get("POD_ID"):
        return pod
    import getpass  # which is slow to load

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a numeric user without a name, as in many containers
        user = str(os.getuid())
    where = f"{user}@{socket.gethostname()}"
    return where if manual else f"{where}/{datetime.datetime.now(datetime.UTC):%Y%m%d%H%M%S}/{os.urandom(3).hex()}"
