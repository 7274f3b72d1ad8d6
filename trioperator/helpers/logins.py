"""Logins for login handlers: from kubeconfigs, the pod's service account, and client libraries that are installed.

::

    @trioperator.on.login(retries=3)
    def login(**kwargs):
        return trioperator.login_with_service_account(**kwargs) or trioperator.login_with_kubeconfig(**kwargs)

The functions accept all arguments of a login handler. They return None if there is nothing to log in with: no file, or
no such library. The client libraries load their own default configuration, so handlers can use them afterwards.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any, Final

import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._kube import connection
from trioperator._kube.connection_info import ConnectionInfo, ContextChoice
from trioperator._logs import Logger
from trioperator.errors import LoginError
from trioperator.settings import OperatorSettings

# Priorities of the credentials, as in Kopf; kr8s, which Kopf lacks, has that of the other async client.
_KUBECONFIG: Final = 10
_SERVICE_ACCOUNT: Final = 20
_CLIENT: Final = 10
_ASYNC_CLIENT: Final = 15
_PYKUBE: Final = 20

_FAILED: Final = "Cannot authenticate the client library neither in-cluster, nor via kubeconfig"


def login_with_kubeconfig(*, settings: OperatorSettings | None = None, **_: Any) -> ConnectionInfo | None:
    """Return the connection of the files in ``$KUBECONFIG``, else of ``~/.kube/config``; None if there is no such file.

    Exec plugins are run. Raises ConfigError for mistakes in the files, LoginError if an exec plugin fails.
    """
    from trioperator._kube.kubeconfig import load_kubeconfig  # not needed in a pod

    info = load_kubeconfig(connection.list_kubeconfigs())
    return None if info is None else _complete(info, settings, priority=_KUBECONFIG)


def login_with_service_account(*, settings: OperatorSettings | None = None, **_: Any) -> ConnectionInfo | None:
    """Return the connection of the pod's service account, None outside of pods.

    Its token and CA are read again when they have been rotated. Raises ConfigError if the token file is empty.
    """
    if not (connection.SERVICE_ACCOUNT / "token").exists():
        return None
    return _complete(connection.load_service_account(connection.SERVICE_ACCOUNT), settings, priority=_SERVICE_ACCOUNT)


def login_via_client(*, logger: Logger, settings: OperatorSettings | None = None, **_: Any) -> ConnectionInfo | None:
    """Return the connection of the library ``kubernetes``, None if it is not installed.

    Raises LoginError if the library finds no configuration.
    """
    config = _import("kubernetes.config")
    if config is None:
        return None
    try:
        config.load_incluster_config()
        logger.debug("Client is configured in cluster with service account.")
    except config.ConfigException:
        try:
            config.load_kube_config(context=_get_context())
        except config.ConfigException as exc:
            raise LoginError(f"{_FAILED}: {exc}") from exc
        _keep_context(config.list_kube_config_contexts()[1]["name"])
        logger.debug("Client is configured via kubeconfig file.")
    configuration = importlib.import_module("kubernetes.client").Configuration.get_default_copy()
    # This call may run a hook that refreshes the token.
    get_header = configuration.get_api_key_with_prefix
    header = get_header("BearerToken") or get_header("authorization")  # the key until version 36
    return _complete(_read_configuration(configuration, header), settings, priority=_CLIENT)


async def login_via_async_client(
    *, logger: Logger, settings: OperatorSettings | None = None, **_: Any
) -> ConnectionInfo | None:
    """Return the connection of the library ``kubernetes_asyncio``, None if it is not installed.

    It loads its configuration in an asyncio loop in a thread. Raises LoginError if it finds none.
    """
    import asyncio  # this is the only use of it

    info = await run_in_thread(lambda: asyncio.run(_load_async_client(logger)), limiter=trio.CapacityLimiter(1))
    return None if info is None else _complete(info, settings, priority=_ASYNC_CLIENT)


async def _load_async_client(logger: Logger) -> ConnectionInfo | None:
    config = _import("kubernetes_asyncio.config")
    if config is None:
        return None
    try:
        config.load_incluster_config()
        logger.debug("Async client is configured in cluster with service account.")
    except config.ConfigException:
        try:
            await config.load_kube_config(context=_get_context())
        except config.ConfigException as exc:
            raise LoginError(f"{_FAILED}: {exc}") from exc
        _keep_context(config.list_kube_config_contexts()[1]["name"])
        logger.debug("Async client is configured via kubeconfig file.")
    configuration = importlib.import_module("kubernetes_asyncio.client").Configuration.get_default_copy()
    header = configuration.get_api_key_with_prefix("BearerToken")
    if inspect.isawaitable(header):  # since version 30
        header = await header
    return _read_configuration(configuration, header)


def login_via_pykube(*, logger: Logger, settings: OperatorSettings | None = None, **_: Any) -> ConnectionInfo | None:
    """Return the connection of the library ``pykube-ng``, None if it is not installed.

    Raises LoginError if the library finds no configuration.
    """
    pykube = _import("pykube")
    if pykube is None:
        return None
    config = _load_pykube(pykube)
    logger.debug("Pykube is configured %s.", "via kubeconfig file" if config.kubeconfig_file else "in cluster")
    cluster, user = config.cluster, config.user
    token = user.get("token")
    if not token and ("exec" in user or "auth-provider" in user):
        token = _fetch_pykube_token(pykube, config)
    ca, certificate, key = (
        None if entry is None else entry.bytes()
        for entry in (cluster.get("certificate-authority"), user.get("client-certificate"), user.get("client-key"))
    )
    info = ConnectionInfo(
        server=cluster["server"],
        ca_data=ca,
        insecure=cluster.get("insecure-skip-tls-verify"),
        username=user.get("username"),
        password=user.get("password"),
        token=token,
        certificate_data=certificate,
        private_key_data=key,
        default_namespace=config.namespace,
    )
    return _complete(info, settings, priority=_PYKUBE)


def _load_pykube(pykube: Any) -> Any:
    """Return the configuration of pykube. Raises LoginError if it finds none."""
    try:
        config = pykube.KubeConfig.from_env()
        if config.kubeconfig_file:
            _keep_context(config.current_context)
            config.set_current_context(_get_context() or config.current_context)
    except (pykube.PyKubeError, FileNotFoundError, KeyError) as exc:
        raise LoginError(f"Cannot authenticate pykube neither in-cluster, nor via kubeconfig: {exc}") from exc
    return config


def _fetch_pykube_token(pykube: Any, config: Any) -> str | None:
    """Return the token that pykube gets from a plugin when it sends a request."""
    api = pykube.HTTPClient(config)
    response = api.session.get(f"{api.url}/version")
    _, _, token = str(response.request.headers.get("Authorization") or "").partition(" ")
    return token or None


async def login_via_kr8s(
    *, logger: Logger, settings: OperatorSettings | None = None, **_: Any
) -> ConnectionInfo | None:
    """Return the connection of the library ``kr8s``, None if it is not installed.

    Raises LoginError if the library finds no configuration.
    """
    # Only its module of credentials: its API object would send a request.
    kr8s = await run_in_thread(lambda: _import("kr8s._auth"), limiter=trio.CapacityLimiter(1))
    if kr8s is None:
        return None
    try:
        auth = await kr8s.KubeAuth(context=_get_context())
    except ValueError as exc:
        raise LoginError(f"Cannot authenticate kr8s neither in-cluster, nor via kubeconfig: {exc}") from exc
    if auth.active_context:
        _keep_context(auth.active_context)
    logger.debug("Kr8s is configured for %s.", auth.server)
    info = ConnectionInfo(
        server=auth.server,
        ca_path=auth.server_ca_file,
        token=(auth.token or "").strip() or None,
        certificate_path=auth.client_cert_file,
        private_key_path=auth.client_key_file,
        tls_server_name=auth.tls_server_name,
        proxy_url=auth.proxy,
        default_namespace=auth.namespace,
    )
    return _complete(info, settings, priority=_ASYNC_CLIENT)


def _get_context() -> str | None:
    """Return the context of kubeconfigs to use, None for the current one."""
    return ContextChoice.find().get(connection.list_kubeconfigs())


def _keep_context(name: str) -> None:
    """Let later logins use the context, unless they use another one already."""
    ContextChoice.find().keep(connection.list_kubeconfigs(), name)


def _import(name: str) -> Any:
    """Return a module of a client library, None if the library is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        if exc.name is not None and name.startswith(exc.name):
            return None
        raise


def _read_configuration(configuration: Any, header: str | None) -> ConnectionInfo:
    """Return the connection of a generated client, whose token is the value of the ``Authorization`` header."""
    scheme, _, token = (header or "").rpartition(" ")
    return ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert or None,
        insecure=True if not configuration.verify_ssl else None,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file or None,
        private_key_path=configuration.key_file or None,
        proxy_url=configuration.proxy or None,
        tls_server_name=getattr(configuration, "tls_server_name", None) or None,
    )


def _complete(info: ConnectionInfo, settings: OperatorSettings | None, *, priority: int) -> ConnectionInfo:
    trust_env = settings is not None and settings.networking.trust_env
    return dataclasses.replace(info, priority=priority, trust_env=trust_env)
