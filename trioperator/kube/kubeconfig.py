"""Kubeconfig files: read, merged as kubectl merges them, and turned into a :class:`ConnectionInfo`.

The first value wins for each named cluster, user and context, and for ``current-context``; relative paths are relative
to the file that holds them. Whatever is wrong with a file is a ConfigError that names the file and the place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trioperator.errors import ConfigError
from trioperator.kube.connection import ConnectionInfo, decode_pem

__all__ = ["load_kubeconfig"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One named cluster, user or context, and where it was found."""

    value: Mapping[str, Any]
    path: Path
    where: str

    def text(self, key: str) -> str | None:
        """Give a text, None where it is absent or empty."""
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigError(
                f"{self.path}: {key} of {self.where} is not text but {type(value).__name__}: put it in quotes."
            )
        return value

    def flag(self, key: str) -> bool:
        """Give a boolean, False where it is absent."""
        value = self.value.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(f"{self.path}: {key} of {self.where} is neither true nor false.")
        return value

    def file(self, key: str) -> Path | None:
        """Give a path, relative to the file of the entry. Raises ConfigError where no file is there."""
        value = self.text(key)
        if value is None:
            return None
        path = self.path.parent / value
        if not path.is_file():
            raise ConfigError(f"{self.path}: {key} of {self.where} names {path}, which is no file.")
        return path

    def pem(self, key: str) -> str | None:
        """Give PEM text of base64 data."""
        value = self.text(key)
        if value is None:
            return None
        try:
            return decode_pem(value, key)
        except ConfigError as exc:
            raise ConfigError(f"{self.path}: {key} of {self.where} is not PEM in base64.") from exc


_Entries = dict[str, _Entry]


def load_kubeconfig(paths: Sequence[Path], *, context: str | None = None) -> ConnectionInfo | None:
    """Give the connection of *context*, by default of the current one; None where no file is there or all are empty.

    Raises ConfigError for what is broken or missing in the files.
    """
    merged: dict[str, _Entries] = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    for path in dict.fromkeys(paths):
        config = _read(path)
        if config is None:
            continue
        top = _Entry(value=config, path=path, where="the file")
        current = current or top.text("current-context")
        for section, entries in merged.items():
            entries |= _entries(config, section, path) | entries
    if current is None and not any(merged.values()):
        return None
    files = ", ".join(map(str, paths))
    name = context or current
    if name is None:
        raise ConfigError(f"No context is chosen in {files}: set one with `kubectl config use-context NAME`.")
    if name not in merged["contexts"]:
        known = ", ".join(sorted(merged["contexts"])) or "none"
        raise ConfigError(f"There is no context {name!r} in {files}; there are: {known}.")
    return _connect(merged["contexts"][name], merged["clusters"], merged["users"])


def _read(path: Path) -> dict[str, Any] | None:
    """Read one file; None where there is none or it is empty."""
    import yaml  # only programs outside of clusters need it

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not a kubeconfig: it is not text in UTF-8.") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        config = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{path}: not valid YAML: {exc.problem or exc.context}{place}") from exc
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise ConfigError(f"{path}: not valid YAML: {str(exc).splitlines()[0] if str(exc) else 'too deep'}") from exc
    if config is None:
        return None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: not a kubeconfig: there is no mapping at its top.")
    if config.get("kind", "Config") != "Config":
        raise ConfigError(f"{path}: not a kubeconfig but a {config['kind']}.")
    return config


def _entries(config: Mapping[str, Any], section: str, path: Path) -> _Entries:
    """Give the named entries of one section of one file."""
    singular = section[:-1]
    items = config.get(section)
    if items is None:
        return {}
    if not isinstance(items, list):
        raise ConfigError(f"{path}: {section} is not a list.")
    entries: _Entries = {}
    for index, item in enumerate(items):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise ConfigError(f"{path}: {section}[{index}] has no name that is text.")
        value = item.get(singular)
        if not isinstance(value, dict | None):
            raise ConfigError(f"{path}: {section}[{index}].{singular} is not a mapping.")
        entries.setdefault(name, _Entry(value=value or {}, path=path, where=f"{singular} {name!r}"))
    return entries


def _connect(context: _Entry, clusters: _Entries, users: _Entries) -> ConnectionInfo:
    """Put the three parts of a connection together."""
    cluster_name = context.text("cluster")
    if cluster_name is None:
        raise ConfigError(f"{context.path}: {context.where} names no cluster.")
    if cluster_name not in clusters:
        raise ConfigError(f"{context.path}: {context.where} names the cluster {cluster_name!r}, which is nowhere.")
    user_name = context.text("user")
    if user_name is not None and user_name not in users:
        raise ConfigError(f"{context.path}: {context.where} names the user {user_name!r}, which is nowhere.")
    user = users[user_name] if user_name is not None else _Entry(value={}, path=context.path, where="no user")
    fields = _cluster_fields(clusters[cluster_name]) | _user_fields(user)
    server: str = fields.pop("server")
    if "://" not in server:
        under_tls = fields.keys() & {"ca_path", "ca_data", "certificate_path", "certificate_data", "insecure"}
        server = f"{'https' if under_tls else 'http'}://{server}"
    try:
        return ConnectionInfo(server=server, default_namespace=context.text("namespace"), **fields)
    except ConfigError as exc:
        raise ConfigError(f"{user.path}: {user.where}: {exc}") from exc


def _cluster_fields(cluster: _Entry) -> dict[str, Any]:
    server = cluster.text("server")
    if server is None:
        raise ConfigError(f"{cluster.path}: {cluster.where} has no server.")
    fields: dict[str, Any] = {
        "server": server,
        "proxy_url": cluster.text("proxy-url"),
        "tls_server_name": cluster.text("tls-server-name"),
        "ca_data": cluster.pem("certificate-authority-data"),
    }
    if fields["ca_data"] is None:
        fields["ca_path"] = cluster.file("certificate-authority")
    if cluster.flag("insecure-skip-tls-verify"):
        if fields["ca_data"] is not None or fields["ca_path"] is not None:
            raise ConfigError(
                f"{cluster.path}: {cluster.where} has both a certificate authority and insecure-skip-tls-verify."
            )
        fields["insecure"] = True
    return _present(fields)


def _user_fields(user: _Entry) -> dict[str, Any]:
    for key in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.value.get(key):
            raise ConfigError(f"{user.path}: {user.where} acts as somebody else ({key}), which is not supported.")
    fields: dict[str, Any] = {
        "username": user.text("username"),
        "password": user.text("password"),
        "token": user.text("token"),
        "token_file": user.file("tokenFile"),
        "certificate_data": user.pem("client-certificate-data"),
        "private_key_data": user.pem("client-key-data"),
    }
    if fields["certificate_data"] is None:
        fields["certificate_path"] = user.file("client-certificate")
    if fields["private_key_data"] is None:
        fields["private_key_path"] = user.file("client-key")
    fields = _present(fields)
    if fields.keys() & {"token", "token_file", "username", "certificate_data", "certificate_path"}:
        return fields
    if user.value.get("exec"):
        raise ConfigError(
            f"{user.path}: {user.where} gets its credentials from a program (exec), which is not supported yet: "
            f"use a token, a client certificate, or a service account's token."
        )
    if user.value.get("auth-provider"):
        return fields | {"token": _provided_token(user)}
    return fields


def _provided_token(user: _Entry) -> str:
    """Give the token that an authentication provider has left in the file."""
    provider = user.value["auth-provider"]
    config = provider.get("config") if isinstance(provider, dict) else None
    token = config.get("access-token") if isinstance(config, dict) else None
    if not isinstance(token, str) or not token:
        raise ConfigError(
            f"{user.path}: {user.where} uses an auth-provider that has left no access-token, "
            f"and providers themselves are not supported: use a token or a client certificate."
        )
    return token


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
