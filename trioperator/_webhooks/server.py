"""The webhook server: an HTTPS endpoint on this machine."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import math
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
import trio

from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.core_tasks import keep
from trioperator._handling.reviews.webhook_configuration import (
    WebhookClientConfig,
    WebhookClientConfigService,
    WebhookFn,
)
from trioperator._http.endpoint import Endpoint, open_sockets
from trioperator._logs import get_logger
from trioperator._webhooks.authority import OwnAuthorities, Phase, SharedAuthorities, in_thread
from trioperator._webhooks.certificates import join_authorities, make_context, read_files
from trioperator._webhooks.issuing import Validity, build_authority, build_certificate
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from trioperator._kube.api_client import ApiClient

_Files = tuple[bytes | None, ...]

# Seconds between two reviews of a connection. API servers close theirs after 90 (the default of Go's HTTP transports):
# if the server was first, that could cross a review, which would fail, as Go does not repeat a POST.
_IDLE: Final = 120.0
# Seconds in which API servers notice that a configuration has changed, which they do not report.
_NOTICE: Final = 10.0
# Intervals of checking files after which all replicas have a new certificate.
_OVERLAP: Final = 5
# The maximum of that interval: for twice as long, other replicas trust a CA that is not known here (see `trust`).
_MAX_INTERVAL: Final = 300.0
# Host names of Services.
_SERVICE: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc")


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookServer:
    """Webhook server on this machine: HTTPS with its own CA and certificate, unless a certificate is given.

    ::

        @trioperator.on.startup()
        def configure(settings, **_):
            settings.admission.server = trioperator.WebhookServer(addr="0.0.0.0", port=9443, host="hooks.ns.svc")
            settings.admission.managed = "hooks.example.com"

    - ``addr``, ``port``: where to listen; default: localhost, and any free port
    - ``path``: path of all webhooks; default: none
    - ``host``: host name in the URLs of webhooks and in the certificate; default: ``addr``. The API server finds
      ``NAME.NAMESPACE.svc`` as a Service
    - ``certfile``, ``pkeyfile``, ``password``: certificate with its chain, and private key, in PEM
    - ``cafile``, ``cadata``: CA for the webhook configurations; default: the CA of the server's own certificate, or
      with ``certfile`` those that API servers trust
    - ``cadump``: file to which the CA is written
    - ``extra_sans``: more host names and addresses for the server's own certificate
    - ``verify_cafile``, ``verify_capath``, ``verify_cadata``, ``verify_mode``: CA of client certificates, and whether
      clients need one (``ssl.CERT_REQUIRED``); default mode: ``ssl.CERT_OPTIONAL`` if there is a CA
    - ``context``: TLS context in place of all that
    - ``insecure``: HTTP without TLS, which API servers do not support
    - ``ca_secret``: Secret, as ``"namespace/name"``, in which the server's own CA is kept; default: a new one each time
    - ``file_check_interval``: seconds between checks whether files have changed, up to 300; default: 60

    See docs/admission.md.
    """

    DEFAULT_HOST: ClassVar[str | None] = None
    DEFAULT_ADDR: ClassVar[str] = "localhost"
    # Whether webhook configurations get the certificate of ``certfile`` as the CA, if none is given.
    CERTFILE_IS_CA: ClassVar[bool] = False

    addr: str | None = None
    port: int | None = None
    path: str | None = None
    host: str | None = None
    cadata: bytes | None = None
    cafile: str | os.PathLike[str] | None = None
    cadump: str | os.PathLike[str] | None = None
    context: ssl.SSLContext | None = None
    insecure: bool = False
    certfile: str | os.PathLike[str] | None = None
    pkeyfile: str | os.PathLike[str] | None = None
    password: str | None = None
    extra_sans: Iterable[str] = ()
    verify_mode: ssl.VerifyMode | None = None
    verify_cafile: str | os.PathLike[str] | None = None
    verify_capath: str | os.PathLike[str] | None = None
    verify_cadata: str | bytes | None = None
    file_check_interval: float = 60
    ca_secret: str | None = None

    def __post_init__(self) -> None:
        self.extra_sans = tuple([self.extra_sans] if isinstance(self.extra_sans, str) else self.extra_sans)
        if self.port is not None and not 0 <= self.port < 65_536:
            raise ConfigError(f"The port of the webhook server is {self.port!r}: it must be from 0 to 65535.")
        if self.cafile is not None and self.cadata is not None:
            raise ConfigError("The webhook server has both cafile=... and cadata=...: use one or the other.")
        if not 0 < self.file_check_interval <= _MAX_INTERVAL:
            raise ConfigError(
                f"The webhook server has file_check_interval={self.file_check_interval}: it must be more than 0 and at"
                f" most {_MAX_INTERVAL:.0f} seconds, as replicas keep CAs of others for ten minutes only."
            )
        if self.pkeyfile is not None and self.certfile is None:
            raise ConfigError("The webhook server has pkeyfile=... without certfile=..., the certificate of the key.")
        self.authorities: SharedAuthorities | None = None
        # Replaces a CA (base64) by another, and returns when API servers are told. Without it, new ones are yielded.
        self.replace_authority: Callable[[str, str], Awaitable[None]] | None = None
        # Whether the operator stops: clients are to send further reviews elsewhere.
        self.is_draining: Callable[[], bool] = lambda: False
        self.reads = self.read_errors = 0  # of the certificate's file
        self.chain: bytes | None = None  # the certificate that is served, in PEM
        if self.ca_secret is not None:
            self._check_secret(self.ca_secret)

    def _check_secret(self, secret: str) -> None:
        if not re.fullmatch(r"[^/]+/[^/]+", secret):
            raise ConfigError(f"The webhook server has ca_secret={secret!r}: it must be 'namespace/name'.")
        if self.certfile is not None or self.context is not None or self.insecure:
            raise ConfigError(
                "The webhook server has ca_secret=..., the CA of its own certificate, together with certfile=...,"
                " context=... or insecure=True: use one or the other."
            )

    async def inspect_cluster(self, client: ApiClient) -> None:
        """Use the client for the Secret with the CA, if there is one. Called before the server."""
        if self.ca_secret is not None:
            self.authorities = SharedAuthorities(client, self.ca_secret)

    @staticmethod
    def build_certificate(hostnames: Iterable[str], password: str | None = None) -> tuple[bytes, bytes]:
        """Return a certificate for host names and addresses, followed by its CA, and its private key, in PEM."""
        hosts, now = list(hostnames), datetime.datetime.now(datetime.UTC)
        authority = build_authority(now, hosts)
        chain, key = build_certificate(hosts, password, authority=authority, now=now)
        return chain + authority.certificate, key

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Serve reviews by *fn*; yield the address now, and again whenever the CA has changed."""
        if self.ca_secret is not None and self.authorities is None:
            raise ConfigError("The webhook server has ca_secret=...: await its inspect_cluster(client) before.")
        tls = None if self.insecure else await _TlsFiles.load(self)
        endpoint, sockets = await open_sockets(self._endpoint)
        with contextlib.ExitStack() as stack:
            for sock in sockets:
                stack.enter_context(sock)
            while True:
                authority = None if tls is None else tls.authority
                if authority is not None:
                    await self.dump_authority(authority)
                yield self._make_client_config(endpoint, authority)
                await self._serve(fn, endpoint, sockets=sockets, tls=tls)

    async def dump_authority(self, authority: bytes) -> None:
        """Write the CA for clients to the file for it, if there is one."""
        if self.cadump is not None:
            await trio.Path(self.cadump).write_bytes(authority)

    async def _serve(
        self, fn: WebhookFn, endpoint: Endpoint, *, sockets: list[socket.socket], tls: _TlsFiles | None
    ) -> None:
        """Serve reviews until the CA has changed, if the new one is to be yielded."""
        from trioperator._http.server import serve_app
        from trioperator._http.server_connection import Limits
        from trioperator._webhooks.app import AdmissionApp

        app = AdmissionApp(fn, self.path or "")
        limits = Limits(connections=1000, share=0.7, idle=_IDLE, answering=math.inf, drain=2.0)
        async with trio.open_nursery() as nursery:
            serve = functools.partial(
                serve_app,
                app,
                endpoint,
                limits=limits,
                make_context=None if tls is None else lambda: tls.context,
                sockets=sockets,
                is_draining=self.is_draining,
            )
            await nursery.start(keep, "webhook server", serve, name="webhook server")
            if tls is None:
                await trio.sleep_forever()
            else:
                await tls.wait_for_authority()
            nursery.cancel_scope.cancel(reason="the CA of the webhooks has changed")

    @property
    def _endpoint(self) -> Endpoint:
        addr = self.DEFAULT_ADDR if self.addr is None else self.addr
        return Endpoint(host=addr, port=self.port or 0, path=f"/{(self.path or '').strip('/')}")

    @property
    def url_host(self) -> str:
        """The host in the URLs of webhooks."""
        if self.host or self.DEFAULT_HOST:
            return self.host or self.DEFAULT_HOST or ""
        return "localhost" if self.addr in (None, "", "0.0.0.0", "::") else str(self.addr)

    def _make_client_config(self, endpoint: Endpoint, authority: bytes | None) -> WebhookClientConfig:
        config = WebhookClientConfig()
        service = find_service(self.url_host, endpoint.port, endpoint.path)
        if service is not None and not self.insecure:
            config["service"] = service
        else:
            url = str(msgspec.structs.replace(endpoint, host=self.url_host)).rstrip("/")
            config["url"] = url if self.insecure else url.replace("http://", "https://", 1)
        if authority is not None:
            config["caBundle"] = _encode(authority)
        get_logger("trioperator.webhooks").debug("The webhook server listens at %s", endpoint)
        return config


def find_service(host: str, port: int, path: str) -> WebhookClientConfigService | None:
    """Return the Service that a host name is of, if it is: API servers need not have the DNS of the cluster."""
    found = _SERVICE.fullmatch(host)
    if found is None:
        return None
    service = WebhookClientConfigService(namespace=found[2], name=found[1], port=port)
    if path.strip("/"):
        service["path"] = path
    return service


class _TlsFiles:
    """The TLS context of a server and the CA for its clients, which follow their files."""

    def __init__(self, server: WebhookServer) -> None:
        self._server = server
        self._authorities: OwnAuthorities | None = None  # of the server's own certificate
        self._phase: Phase | None = None
        self._made: tuple[bytes, bytes, bytes] | None = None
        self._digest = b""
        self._trusted: bytes | None = None  # what API servers trust: for a while, the CA before, too
        self._until = 0.0  # when they need no longer trust that
        self.context: ssl.SSLContext
        self.authority: bytes | None

    @classmethod
    async def load(cls, server: WebhookServer) -> _TlsFiles:
        """Read all files, and make what is not given. Raises ConfigError."""
        loaded = cls(server)
        if server.certfile is None and server.context is None:
            loaded._authorities = server.authorities or OwnAuthorities(loaded._hosts)
        files = await loaded._read()
        (loaded.context, loaded.authority), loaded._digest = loaded._load(files), loaded._digest_of(files)
        loaded._trusted = loaded.authority
        return loaded

    @property
    def _hosts(self) -> list[str]:
        """The host names and addresses of the server's own certificate."""
        server = self._server
        local = ["localhost", "127.0.0.1", "::1"]
        named = [server.url_host, server.addr or "localhost", *server.extra_sans]
        return named + local if server.url_host in local else named

    async def wait_for_authority(self) -> None:
        """Take over changed files, until the CA for clients has changed, if that is not replaced meanwhile."""
        logger = get_logger("trioperator.webhooks")
        while self.authority == self._trusted or self._server.replace_authority is not None:
            await trio.sleep(self._delay)
            try:
                files = await self._read()
                if self._digest_of(files) != self._digest:
                    await self._replace(files)
                    logger.info("The certificates of the webhook server have been reloaded.")
                elif self.authority != self._trusted and trio.current_time() >= self._until:
                    await self._trust(self.authority)
            except ConfigError as error:  # perhaps one of the files is written just now
                self._server.read_errors += 1
                logger.warning("The certificates of the webhook server are not reloaded yet: %s", error)
        self._trusted = self.authority

    async def _read(self) -> _Files:
        await self._renew()
        server = self._server
        server.reads += server.certfile is not None
        paths = (server.certfile, server.pkeyfile, server.cafile, server.verify_cafile)
        return await read_files(None if path is None else os.fspath(path) for path in paths)

    async def _renew(self) -> None:
        """Issue the server's own certificate, again if that or its CA is to be replaced."""
        if self._authorities is None:
            return
        phase, now = await self._authorities.find_phase(), wall_now()
        if self._made is None or self._phase is None or phase.issuer != self._phase.issuer or self._is_due(now):
            issue = functools.partial(build_certificate, self._hosts, authority=phase.issuer, now=now)
            chain, key = await in_thread(issue)
        else:
            chain, key, _ = self._made
        self._phase, self._made = phase, (chain, key, phase.trusted)

    def _is_due(self, now: datetime.datetime) -> bool:
        return self._made is not None and Validity.read(self._made[0]).is_due(now)

    @property
    def _delay(self) -> float:
        """Seconds until the next check: when all replicas change over to another CA, if that is earlier."""
        interval = self._server.file_check_interval
        if self._phase is None or self._phase.end is None:
            return interval
        return min(interval, max((self._phase.end - wall_now()).total_seconds(), 0.0))

    async def _replace(self, files: _Files) -> None:
        """Take over changed files; with a new CA, only when API servers trust it beside the old one.

        Other replicas get the files later: until then, the old CA is trusted, too. Raises ConfigError, and changes
        nothing then.
        """
        context, authority = self._load(files)
        interval = self._server.file_check_interval
        if self._server.replace_authority is not None and authority != self.authority:
            if authority is not None and self._trusted is not None:
                await self._trust(join_authorities(self._trusted, authority))
                await trio.sleep(min(_NOTICE, interval))
            self._until = trio.current_time() + _OVERLAP * interval
        self.context, self.authority, self._digest = context, authority, self._digest_of(files)

    async def _trust(self, authority: bytes | None) -> None:
        """Let API servers trust a CA, or several, in place of those that they trust now. Return when they are told."""
        replace, trusted = self._server.replace_authority, self._trusted
        if authority is not None:
            await self._server.dump_authority(authority)
            if replace is not None and trusted is not None and authority != trusted:
                await replace(_encode(trusted), _encode(authority))
        self._trusted = authority

    def _load(self, files: _Files) -> tuple[ssl.SSLContext, bytes | None]:
        """Return the context and the CA of these contents. Raises ConfigError."""
        chain, key, authority, verify = files
        authority = self._server.cadata if authority is None else authority
        if self._made is not None:
            # A CA without a certificate by it can only be the clients'; the server's own is needed as well.
            verify = authority if verify is None and self._server.verify_cadata is None else verify
            chain, key, own = self._made
            authority = own if authority is None else own + authority
        server = self._server
        if authority is None and server.CERTFILE_IS_CA:
            authority = chain
        context = server.context
        if context is None:
            assert chain is not None
            context = make_context(chain, key, None if self._made else self._server.password)
            server.chain = chain
            self._load_verification(context, verify)
        return context, authority

    def _digest_of(self, files: _Files) -> bytes:
        return _digest((*files, *(self._made or ())))

    def _load_verification(self, context: ssl.SSLContext, verify: bytes | None) -> None:
        """Let the context verify client certificates, if there is a CA for them."""
        server = self._server
        given = [part for part in (verify, server.verify_cadata) if part]
        if given or server.verify_capath is not None:
            try:
                data = [part.decode("ascii") if isinstance(part, bytes) else part for part in given]
                context.load_verify_locations(capath=server.verify_capath, cadata="\n".join(data) or None)
            except (ssl.SSLError, OSError, ValueError) as error:
                raise ConfigError(f"The CA of client certificates cannot be loaded: {error}") from error
            context.verify_mode = ssl.CERT_OPTIONAL
        if server.verify_mode is not None:
            context.verify_mode = server.verify_mode


def _encode(authority: bytes) -> str:
    return base64.b64encode(authority).decode("ascii")


def _digest(files: Iterable[bytes | None]) -> bytes:
    return hashlib.sha256(b"\0".join(hashlib.sha256(part or b"").digest() for part in files)).digest()
