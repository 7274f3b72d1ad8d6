"""Kubeconfig files: parsed, merged as kubectl merges them, and converted into a :class:`ConnectionInfo`.

The first value wins for each named cluster, user and context, and for ``current-context``; relative paths are relative
to the file that contains them. Any mistake in a file is a ConfigError that names the file and the entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from trioperator._kube.connection_info import ConnectionInfo, ContextChoice
from trioperator._kube.exec_plugin import describe_cluster, parse_exec_plugin, run_exec_plugin
from trioperator._kube.tls_config import decode_pem
from trioperator.errors import ConfigError, LoginError

# With any of these, an exec plugin or auth provider is not used.
_CREDENTIALS: Final = frozenset({"token", "token_file", "username", "certificate_data", "certificate_path"})
# Replacements of the auth providers that client-go had.
_AUTH_PROVIDERS: Final = {
    "gcp": "install gke-gcloud-auth-plugin, and run `gcloud container clusters get-credentials`",
    "azure": "install kubelogin, and run `kubelogin convert-kubeconfig`",
    "oidc": "use an exec plugin for OIDC, such as `kubectl oidc-login`",
}


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One named cluster, user or context, and where it is defined."""

    value: Mapping[str, Any]
    path: Path
    where: str

    def get_string(self, key: str) -> str | None:
        """Return a string, None if it is absent or empty."""
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ConfigError(
                f"{self.path}: {key} of {self.where} must be a string, not {type(value).__name__}: put it in quotes."
            )
        return value

    def get_flag(self, key: str) -> bool:
        """Return a boolean, False if it is absent."""
        value = self.value.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(f"{self.path}: {key} of {self.where} must be true or false.")
        return value

    def get_file(self, key: str) -> Path | None:
        """Return a path, resolved relative to the kubeconfig. Raises ConfigError if the file does not exist."""
        value = self.get_string(key)
        if value is None:
            return None
        path = self.path.parent / value
        if not path.is_file():
            raise ConfigError(f"{self.path}: {key} of {self.where} refers to {path}, which is not a file.")
        return path

    def get_pem(self, key: str) -> str | None:
        """Return PEM from base64-encoded data."""
        value = self.get_string(key)
        if value is None:
            return None
        try:
            return decode_pem(value, key)
        except ConfigError as exc:
            raise ConfigError(f"{self.path}: {key} of {self.where} is not base64-encoded PEM.") from exc


_Entries = dict[str, _Entry]


def load_kubeconfig(paths: Sequence[Path], *, context: str | None = None) -> ConnectionInfo | None:
    """Return the connection of *context*, or None if all files are absent or empty.

    The default is the current one, or that of the client's first login.

    If the user has an exec plugin, it is run. Raises ConfigError for mistakes in the files, also if they are absent or
    empty where the client has logged in by them before; LoginError if the plugin fails.
    """
    merged: dict[str, _Entries] = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    for path in dict.fromkeys(paths):
        config = _read(path)
        if config is None:
            continue
        top = _Entry(value=config, path=path, where="the file")
        current = current or top.get_string("current-context")
        for section, entries in merged.items():
            entries |= _entries(config, section, path) | entries
    files, choice = ", ".join(map(str, paths)), ContextChoice.find()
    if current is None and not any(merged.values()):
        if (name := choice.get(paths)) is not None:  # the files are being rewritten: to log in elsewhere would be fatal
            raise ConfigError(f"The context {name!r}, which was used before, is not in {files} any more.")
        return None
    name = context or choice.get(paths) or current
    known = ", ".join(sorted(merged["contexts"])) or "none"
    if name is None:
        if not merged["contexts"]:
            raise ConfigError(f"No context is defined in {files}: add one with `kubectl config set-context NAME`.")
        raise ConfigError(
            f"No current context is set in {files}: set one with `kubectl config use-context NAME`; available: {known}."
        )
    if name not in merged["contexts"]:
        raise ConfigError(f"There is no context {name!r} in {files}; available: {known}.")
    info = _connect(merged["contexts"][name], merged["clusters"], merged["users"])
    if context is None:
        choice.keep(paths, name)
    return info


def describe_unused(path: Path) -> str | None:
    """Return what is wrong with a file for which :func:`load_kubeconfig` returns None; None if it does not exist."""
    if not path.exists():
        return None
    return "is empty" if _read(path) is None else "defines no clusters, users or contexts"


def _read(path: Path) -> dict[str, Any] | None:
    """Parse one file; return None if it is absent or empty."""
    import yaml  # not needed in a pod

    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not a kubeconfig: not valid UTF-8.") from exc
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
        raise ConfigError(
            f"{path}: not valid YAML: {str(exc).splitlines()[0] if str(exc) else 'nested too deeply'}"
        ) from exc
    if config is None:
        return None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: not a kubeconfig: the top level is not a mapping.")
    if config.get("kind", "Config") != "Config":
        raise ConfigError(f"{path}: not a kubeconfig but a {config['kind']}.")
    return config


def _entries(config: Mapping[str, Any], section: str, path: Path) -> _Entries:
    """Return the named entries of one section of one file."""
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
            raise ConfigError(f"{path}: {section}[{index}] has no name, or one that is not a string.")
        value = item.get(singular)
        if not isinstance(value, dict | None):
            raise ConfigError(f"{path}: {section}[{index}].{singular} is not a mapping.")
        entries.setdefault(name, _Entry(value=value or {}, path=path, where=f"{singular} {name!r}"))
    return entries


def _connect(context: _Entry, clusters: _Entries, users: _Entries) -> ConnectionInfo:
    cluster_name = context.get_string("cluster")
    if cluster_name is None:
        raise ConfigError(f"{context.path}: {context.where} has no cluster.")
    if cluster_name not in clusters:
        raise ConfigError(
            f"{context.path}: {context.where} refers to the cluster {cluster_name!r}, which is not defined."
        )
    user_name = context.get_string("user")
    if user_name is not None and user_name not in users:
        raise ConfigError(f"{context.path}: {context.where} refers to the user {user_name!r}, which is not defined.")
    user = users[user_name] if user_name is not None else _Entry(value={}, path=context.path, where="no user")
    cluster = clusters[cluster_name]
    fields = _cluster_fields(cluster)
    own = _user_fields(user)
    if "://" not in fields["server"]:
        under_tls = (fields | own).keys() & {"ca_path", "ca_data", "certificate_path", "certificate_data", "insecure"}
        fields["server"] = f"{'https' if under_tls else 'http'}://{fields['server']}"
    try:
        if not own.keys() & _CREDENTIALS and user.value.get("exec"):
            own |= _run_plugin(user, describe_cluster(fields, _find_extension(cluster)))
        origin = f"{context.where} of {context.path}" + ("" if user_name is None else f", as {user.where}")
        return ConnectionInfo(default_namespace=context.get_string("namespace"), origin=origin, **fields, **own)
    except (ConfigError, LoginError) as exc:
        raise type(exc)(f"{user.path}: {user.where}: {exc}") from exc


def _run_plugin(user: _Entry, cluster: Mapping[str, Any]) -> dict[str, Any]:
    return run_exec_plugin(parse_exec_plugin(user.value["exec"], folder=user.path.absolute().parent), cluster)


def _find_extension(cluster: _Entry) -> Any:
    """Return what the cluster has for exec plugins, None if it has nothing."""
    extensions = cluster.value.get("extensions")
    for item in extensions if isinstance(extensions, list) else []:
        if isinstance(item, dict) and item.get("name") == "client.authentication.k8s.io/exec":
            return item.get("extension")
    return None


def _cluster_fields(cluster: _Entry) -> dict[str, Any]:
    server = cluster.get_string("server")
    if server is None:
        raise ConfigError(f"{cluster.path}: {cluster.where} has no server.")
    fields: dict[str, Any] = {
        "server": server,
        "proxy_url": cluster.get_string("proxy-url"),
        "tls_server_name": cluster.get_string("tls-server-name"),
        "ca_data": cluster.get_pem("certificate-authority-data"),
    }
    if fields["ca_data"] is None:
        fields["ca_path"] = cluster.get_file("certificate-authority")
    if cluster.get_flag("insecure-skip-tls-verify"):
        if fields["ca_data"] is not None or fields["ca_path"] is not None:
            raise ConfigError(
                f"{cluster.path}: {cluster.where} has both a certificate authority and insecure-skip-tls-verify."
            )
        fields["insecure"] = True
    return _drop_none(fields)


def _user_fields(user: _Entry) -> dict[str, Any]:
    for key in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.value.get(key):
            raise ConfigError(f"{user.path}: {user.where} uses impersonation ({key}), which is not supported.")
    fields: dict[str, Any] = {
        "username": user.get_string("username"),
        "password": user.get_string("password"),
        "token": user.get_string("token"),
        "token_file": user.get_file("tokenFile"),
        "certificate_data": user.get_pem("client-certificate-data"),
        "private_key_data": user.get_pem("client-key-data"),
    }
    if fields["certificate_data"] is None:
        fields["certificate_path"] = user.get_file("client-certificate")
    if fields["private_key_data"] is None:
        fields["private_key_path"] = user.get_file("client-key")
    fields = _drop_none(fields)
    if not fields.keys() & _CREDENTIALS and not user.value.get("exec") and user.value.get("auth-provider"):
        fields["token"] = _get_stored_token(user)
    return fields


def _get_stored_token(user: _Entry) -> str:
    """Return the token that a legacy auth provider has stored in the file. Raises ConfigError if there is none."""
    provider = user.value["auth-provider"]
    config = provider.get("config") if isinstance(provider, dict) else None
    token = config.get("access-token") if isinstance(config, dict) else None
    if isinstance(token, str) and token:
        return token
    name = provider.get("name") if isinstance(provider, dict) else None
    way_out = _AUTH_PROVIDERS.get(str(name), "replace it by an exec plugin")
    raise ConfigError(
        f"{user.path}: {user.where} uses the auth-provider {name!r}, which Kubernetes has removed, and there is no "
        f"stored access-token: {way_out}; or use a token or a client certificate."
    )


def _drop_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
