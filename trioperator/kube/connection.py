"""What it takes to talk to one API server: where it is, whom to trust, and who we are.

:func:`load_connection` finds it as kubectl and client libraries in a pod do. Secrets are in no message and no ``repr``.
Nothing here opens a connection.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trioperator.errors import ConfigError

__all__ = ["SERVICE_ACCOUNT", "ConnectionInfo", "load_connection", "load_service_account", "read_secret"]

#: The folder in which a pod finds its service account.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_SECRETS: Final = frozenset({"password", "token", "private_key_data", "certificate_data", "ca_data", "proxy_url"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConnectionInfo:
    """Say how to reach an API server, and as whom.

    ``*_data`` may be PEM, or PEM in base64, as text or bytes; of a path and data for the same thing only one can be
    given. ``token_file`` is read again each minute, and wins over ``token``, which stands in while the file cannot be
    read. ``scheme`` is that of the ``Authorization`` header, ``Bearer`` for a token. ``trust_env`` lets the usual
    environment variables name a proxy. ``priority`` and ``expiration`` are for those who choose among several;
    past its expiration (naive: UTC) the source of the connection is asked again.
    Raises ConfigError where the fields contradict each other.
    """

    server: str
    ca_path: str | os.PathLike[str] | None = None
    ca_data: str | bytes | None = None
    insecure: bool | None = None
    username: str | None = None
    password: str | None = None
    scheme: str | None = None
    token: str | None = None
    token_file: str | os.PathLike[str] | None = None
    certificate_path: str | os.PathLike[str] | None = None
    certificate_data: str | bytes | None = None
    private_key_path: str | os.PathLike[str] | None = None
    private_key_data: str | bytes | None = None
    tls_server_name: str | None = None
    default_namespace: str | None = None
    proxy_url: str | None = None
    trust_env: bool = False
    priority: int = 0
    expiration: datetime.datetime | None = None

    def __post_init__(self) -> None:
        for what, path, data in (
            ("ca", self.ca_path, self.ca_data),
            ("certificate", self.certificate_path, self.certificate_data),
            ("private_key", self.private_key_path, self.private_key_data),
        ):
            if path is not None and data is not None:
                raise ConfigError(f"Both {what}_path and {what}_data are given: give only one of them.")
        has_certificate = self.certificate_path is not None or self.certificate_data is not None
        has_key = self.private_key_path is not None or self.private_key_data is not None
        if has_key and not has_certificate:
            raise ConfigError("A private key is given without its certificate.")
        if self.certificate_data is not None and not has_key:
            raise ConfigError("A client certificate is given without its private key.")

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                shown.append(f"{field.name}={'…' if field.name in _SECRETS else repr(value)}")
        return f"ConnectionInfo({', '.join(shown)})"

    @property
    def paths(self) -> tuple[str | os.PathLike[str], ...]:
        """The files that the connection depends on, and that may change under it."""
        paths = (self.token_file, self.ca_path, self.certificate_path, self.private_key_path)
        return tuple(path for path in paths if path is not None)

    def authorization(self) -> str | None:
        """Give the value of the ``Authorization`` header, a secret. Raises ConfigError for an unreadable token file."""
        token = self.token
        if self.token_file is not None:
            try:
                token = read_secret(self.token_file, "token") or token
            except ConfigError:
                if token is None:
                    raise
        if token is not None:
            value = f"{self.scheme or 'Bearer'} {token}"
        elif self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            value = f"{self.scheme or 'Basic'} {base64.b64encode(pair).decode()}"
        elif self.scheme is not None:
            value = self.scheme
        else:
            return None
        if not value.isascii() or not value.isprintable():
            raise ConfigError("The token has characters in it that no HTTP header can hold, such as a line break.")
        return value


def read_secret(path: str | os.PathLike[str], what: str) -> str:
    """Read a small text file, without the white space around it. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise ConfigError(f"Cannot read the {what} file {os.fspath(path)}: {reason}") from exc


def decode_pem(data: str | bytes, what: str) -> str:
    """Give PEM text from PEM or from PEM in base64. Raises ConfigError."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        if b"-----BEGIN" not in raw:
            raw = base64.b64decode(b"".join(raw.split()), validate=True)
        text = raw.decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise ConfigError(f"The {what} data is neither PEM nor PEM in base64.") from exc
    if "-----BEGIN" not in text:
        raise ConfigError(f"The {what} data is neither PEM nor PEM in base64.")
    return text


def load_connection(
    kubeconfig_paths: Iterable[str | os.PathLike[str]] | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: str | os.PathLike[str] = SERVICE_ACCOUNT,
) -> ConnectionInfo:
    """Find out how to talk to the cluster.

    The files are *kubeconfig_paths*, else those of ``$KUBECONFIG``, else ``~/.kube/config``. Where none of them is
    there, and none was asked for by argument, it is the service account of the pod.
    Raises ConfigError where nothing is found, or what is found is broken.
    """
    from trioperator.kube.kubeconfig import load_kubeconfig  # YAML is not needed in a pod

    if kubeconfig_paths is not None:
        paths = [Path(path).expanduser() for path in kubeconfig_paths]
        info = load_kubeconfig(paths, context=context)
        if info is None:
            raise ConfigError(f"There is no kubeconfig at {', '.join(map(str, paths)) or 'no path at all'}.")
        return info
    listed = [Path(path).expanduser() for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    paths = listed or [Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"]
    info = load_kubeconfig(paths, context=context)
    if info is not None:
        return info
    if context is None and (Path(service_account) / "token").exists():
        return load_service_account(service_account, environ=environ)
    where = f"$KUBECONFIG names {', '.join(map(str, listed))}" if listed else f"there is no {paths[0]}"
    raise ConfigError(
        f"There is no way to a cluster: {where}{', which is not there' if listed else ''}; and there is no service "
        f"account in {os.fspath(service_account)}. Set $KUBECONFIG, or run with --embedded."
    )


def load_service_account(
    folder: str | os.PathLike[str] = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ
) -> ConnectionInfo:
    """Describe the connection of a pod: its token and CA stay in their files, for both are rotated.

    Raises ConfigError where the folder holds no token.
    """
    folder = Path(folder)
    host = environ.get("KUBERNETES_SERVICE_HOST") or "kubernetes.default.svc"
    port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not read_secret(folder / "token", "service account's token"):
        raise ConfigError(f"The service account's token file {folder / 'token'} is empty.")
    ca_path = folder / "ca.crt"
    namespace = folder / "namespace"
    return ConnectionInfo(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_path=ca_path if ca_path.exists() else None,
        token_file=folder / "token",
        default_namespace=read_secret(namespace, "namespace") if namespace.exists() else None,
    )
