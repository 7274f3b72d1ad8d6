"""Finding the cluster as kubectl and in-cluster clients do: kubeconfig files first, then the pod's service account."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trioperator._kube.connection_info import ConnectionInfo, read_secret
from trioperator.errors import ConfigError

#: The folder in which a pod finds its service account.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_connection(
    kubeconfig_paths: Iterable[str | os.PathLike[str]] | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: str | os.PathLike[str] = SERVICE_ACCOUNT,
) -> ConnectionInfo:
    """Load the connection from kubeconfig files, or from the service account of the pod if there are none.

    The files are *kubeconfig_paths*, else those in ``$KUBECONFIG``, else ``~/.kube/config``. With *kubeconfig_paths*
    or *context* the service account is not used. Raises ConfigError if nothing is found, or what is found is invalid,
    and LoginError if the exec plugin of a kubeconfig fails.
    """
    from trioperator._kube.kubeconfig import load_kubeconfig  # not needed in a pod

    if kubeconfig_paths is None:
        paths = list_kubeconfigs(environ)
    else:
        paths = [Path(path).expanduser() for path in kubeconfig_paths]
    info = load_kubeconfig(paths, context=context)
    if info is not None:
        return info
    is_listed = kubeconfig_paths is None and environ.get("KUBECONFIG", "").strip(os.pathsep)
    origin = " (from $KUBECONFIG)" if is_listed else ""
    problem = _describe_problem(paths, origin)
    if kubeconfig_paths is not None or context is not None:
        wanted = "cluster" if context is None else f"context {context!r}"
        raise ConfigError(f"No {wanted} is configured: {problem}.")
    if (Path(service_account) / "token").exists():
        return load_service_account(service_account, environ=environ)
    raise ConfigError(
        f"No cluster is configured: {problem}; and there is no service account in {os.fspath(service_account)}. "
        f"Set $KUBECONFIG; trioperator run --embedded needs no cluster."
    )


def list_kubeconfigs(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the kubeconfig files in ``$KUBECONFIG``, else ``~/.kube/config``; they may not exist."""
    listed = [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    defaults = listed or [os.path.join(environ.get("HOME") or "~", ".kube", "config")]
    return [Path(path).expanduser() for path in defaults]


def _describe_problem(paths: list[Path], origin: str) -> str:
    """Return what is wrong with files that define no connection: the empty ones, or else that none exists."""
    from trioperator._kube.kubeconfig import describe_unused

    found = [f"{path}{origin} {problem}" for path in paths if (problem := describe_unused(path)) is not None]
    if found:
        return "; ".join(found)
    files = ", ".join(map(str, paths))
    return f"{files}{origin} does not exist" if origin else f"there is no kubeconfig at {files or 'any path'}"


def load_service_account(
    folder: str | os.PathLike[str] = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ
) -> ConnectionInfo:
    """Return the connection of a pod; its token and CA stay in their files, because both are rotated.

    Raises ConfigError if there is no token in the folder.
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
        origin="the service account of the pod",
    )
