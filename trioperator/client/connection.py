"""The operator's connection for other client libraries: clients that are logged in with the operator's credentials."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.tls_config import decode_pem
from trioperator._model.jsontypes import JsonObject
from trioperator.client.foreign_transport import lend_transport
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    import os

    import httpx

    from trioperator._kube.api_client import ApiClient

_NAME: Final = "trioperator"


class BaseConnection:
    """Common parts of the connections of async and of sync functions."""

    def __init__(self, kube: ApiClient, transport: httpx.AsyncBaseTransport | None) -> None:
        self._kube = kube
        self._transport = transport

    @property
    def info(self) -> ConnectionInfo:
        """The address of the API server, and the current credentials, which are secret."""
        return self._kube.credentials.current.info

    @property
    def kubeconfig(self) -> JsonObject:
        """A kubeconfig with the current credentials, as a dict. Keep it secret."""
        return make_kubeconfig(self.info)

    def for_kubernetes(self) -> Any:
        """Return an ``ApiClient`` of the official client (``kubernetes``), for sync functions.

        ::

            core = kubernetes.client.CoreV1Api(connection.for_kubernetes())

        Its token is renewed together with the operator's. The package must be installed.
        """
        api = importlib.import_module("kubernetes.config").new_client_from_config_dict(self.kubeconfig)
        api.configuration.refresh_api_key_hook = self._refresh
        return api

    def for_pykube(self) -> Any:
        """Return an ``HTTPClient`` of pykube-ng with the current credentials, for sync functions."""
        pykube = importlib.import_module("pykube")
        return pykube.HTTPClient(pykube.KubeConfig(self.kubeconfig))

    def _refresh(self, configuration: Any) -> None:
        """Renew the token of the official client, in whatever thread."""
        if authorization := read_authorization(self._kube):
            configuration.api_key.update(BearerToken=authorization, authorization=authorization)  # until version 36

    def _make_httpx_options(self) -> dict[str, Any]:
        info = self.info
        options: dict[str, Any] = {"base_url": info.server, "auth": self._make_auth(), "trust_env": info.trust_env}
        if self._transport is None:
            options["verify"] = info.as_ssl_context()
            options["proxy"] = info.proxy_url
        return options

    def _read_headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate requests, as they are now."""
        credentials = self._kube.credentials.current
        try:
            return credentials.info.as_http_headers()
        except ConfigError:  # a file is being replaced: these are the operator's own
            own = ((name.decode(), value.decode()) for name, value in credentials.headers)
            return {name: value for name, value in own if name != "User-Agent"}

    def _make_auth(self) -> httpx.Auth:
        import httpx  # big, and few need it

        connection = self

        class CurrentCredentials(httpx.Auth):
            def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
                request.headers.update(connection._read_headers())
                yield request

        return CurrentCredentials()


class Connection(BaseConnection):
    """The operator's connection, for other client libraries. See docs/client.md.

    ::

        connection = await client.connection()
        async with connection.for_httpx() as http:
            response = await http.get("/version")

    The libraries must be installed. Each call returns a new client, which the caller closes.
    """

    def for_httpx(self) -> httpx.AsyncClient:
        """Return a client of httpx, whose requests have the current credentials, on the operator's transport, if any.

        Its URLs are paths, such as ``"/api/v1/pods"``.
        """
        import httpx

        return httpx.AsyncClient(transport=self._transport, **self._make_httpx_options())

    def for_lightkube(self) -> Any:
        """Return an ``AsyncClient`` of lightkube with the current credentials, and the transport, if any."""
        lightkube = importlib.import_module("lightkube")
        options: dict[str, Any] = {}
        if self._transport is not None:
            httpx = importlib.import_module("lightkube.core.exceptions").httpx
            options["transport"] = lend_transport(self._transport, httpx)
        return lightkube.AsyncClient(config=lightkube.KubeConfig.from_dict(self.kubeconfig), **options)

    async def for_kr8s(self) -> Any:
        """Return an ``Api`` of ``kr8s.asyncio`` with the current credentials."""
        return await importlib.import_module("kr8s.asyncio").api(kubeconfig=self.kubeconfig)


class SyncConnection(BaseConnection):
    """The operator's connection, for other client libraries in sync functions: see :class:`Connection`.

    ::

        core = kubernetes.client.CoreV1Api(client.connection().for_kubernetes())
    """

    def for_httpx(self) -> httpx.Client:
        """Return a client of httpx, whose requests have the current credentials. It always uses the network.

        Its URLs are paths, such as ``"/api/v1/pods"``.
        """
        import httpx

        return httpx.Client(**self._make_httpx_options())

    def for_lightkube(self) -> Any:
        """Return a ``Client`` of lightkube with the current credentials."""
        lightkube = importlib.import_module("lightkube")
        return lightkube.Client(config=lightkube.KubeConfig.from_dict(self.kubeconfig))

    def for_kr8s(self) -> Any:
        """Return an ``Api`` of ``kr8s`` with the current credentials."""
        return importlib.import_module("kr8s").api(kubeconfig=self.kubeconfig)


def read_authorization(kube: ApiClient) -> str | None:
    """Return the header ``Authorization`` as it is now; None if there is none, or its file is being replaced."""
    try:
        return kube.credentials.current.info.authorization()
    except ConfigError:
        return None


def make_kubeconfig(info: ConnectionInfo) -> JsonObject:
    """Return a kubeconfig for a connection, with the token as it is now.

    Raises ConfigError if files cannot be read, or the scheme of ``Authorization`` cannot be in a kubeconfig.
    """
    cluster = {
        "server": info.server,
        "certificate-authority-data": _encode(info.ca_path, info.ca_data, "certificate authority"),
        "insecure-skip-tls-verify": info.insecure or None,
        "tls-server-name": info.tls_server_name,
        "proxy-url": info.proxy_url,
    }
    user = {
        "client-certificate-data": _encode(info.certificate_path, info.certificate_data, "client certificate"),
        "client-key-data": _encode(info.private_key_path, info.private_key_data, "client key"),
        **_make_user(info),
    }
    context = {"cluster": _NAME, "user": _NAME, "namespace": info.default_namespace or "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": _drop_absent(cluster)}],
        "users": [{"name": _NAME, "user": _drop_absent(user)}],
        "contexts": [{"name": _NAME, "context": context}],
        "current-context": _NAME,
    }


def _make_user(info: ConnectionInfo) -> dict[str, str | None]:
    scheme, _, secret = (info.authorization() or "").partition(" ")
    if scheme in ("", "Bearer"):
        return {"token": secret or None}
    if scheme == "Basic" and info.username is not None:
        return {"username": info.username, "password": info.password or ""}
    raise ConfigError(
        f"Credentials with the scheme {scheme} cannot be passed on to other client libraries: use a token."
    )


def _encode(path: str | os.PathLike[str] | None, data: str | bytes | None, what: str) -> str | None:
    if data is None and path is not None:
        try:
            data = Path(path).read_bytes()
        except OSError as exc:
            raise ConfigError(f"Cannot read the {what} {path}: {exc.strerror}") from exc
    return None if data is None else base64.b64encode(decode_pem(data, what).encode()).decode()


def _drop_absent(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
