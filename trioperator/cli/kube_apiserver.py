"""The embedded API server with the command line of kube-apiserver, for the test environments of other languages.

``trioperator cluster assets`` makes the program that runs this module. As with a kube-apiserver alone, no controllers
run: garbage is not collected and namespaces stay, unless ``TRIOPERATOR_CLUSTER_CONTROLLERS`` names controllers.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import os
import pathlib
import signal
import ssl
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import trio

from trioperator.apiserver import Cluster, User, serve_cluster
from trioperator.apiserver.reading.discovery import VERSION
from trioperator.cli.admin import adjustable_clock, cluster_options, make_admin
from trioperator.errors import ConfigError

CONTROLLERS: Final = "TRIOPERATOR_CLUSTER_CONTROLLERS"
ADMIN_TOKEN: Final = "TRIOPERATOR_CLUSTER_ADMIN_TOKEN"  # the path of a file
# Flags of test environments that are not needed: objects are in memory, and tokens have keys of their own.
_NEEDLESS: Final = frozenset(
    {
        *("advertise-address", "allow-privileged", "api-audiences", "disable-admission-plugins", "etcd-cafile"),
        *("etcd-certfile", "etcd-keyfile", "etcd-prefix", "etcd-servers", "insecure-port", "logtostderr"),
        *("service-account-issuer", "service-account-key-file", "service-account-lookup"),
        *("service-account-signing-key-file", "service-cluster-ip-range", "storage-backend", "v", "watch-cache"),
    }
)
_SERVICE: Final = "kubernetes.default.svc.cluster.local"


class Flags(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The flags of kube-apiserver that have an effect, and the names of those that have none."""

    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    cert_dir: str = "/var/run/kubernetes"
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    client_ca_file: str = ""
    token_auth_file: str = ""
    authorization_mode: str = "AlwaysAllow"
    anonymous_auth: bool = True
    ignored: tuple[str, ...] = ()

    @property
    def authorization(self) -> str:
        """The authorization mode of the cluster: any mode but AlwaysAllow becomes RBAC."""
        return "always-allow" if "AlwaysAllow" in self.authorization_mode.split(",") else "rbac"


_SWITCHES: Final = frozenset({"anonymous-auth", "allow-privileged"})  # which have a value only after "="


def parse_flags(args: Sequence[str]) -> Flags:
    """Parse a command line of kube-apiserver. Raises ConfigError for values that cannot be used."""
    known = {field.encode_name for field in msgspec.structs.fields(Flags)} - {"ignored"}
    values: dict[str, str] = {}
    ignored: dict[str, None] = {}
    for name, value in _split(args):
        if name in known:
            values[name] = value
        elif name not in _NEEDLESS:
            ignored[name] = None
    try:
        return msgspec.convert({**values, "ignored": list(ignored)}, Flags, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"A flag of kube-apiserver has a wrong value: {error}.") from None


def _split(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of flags: ``--name=value``, ``--name value`` or ``--name``."""
    left = list(reversed(args))
    while left:
        name, equals, value = left.pop().partition("=")
        if not name.startswith("-"):
            continue
        name = name.lstrip("-").replace("_", "-")
        if not equals:
            has_value = name not in _SWITCHES and left and not left[-1].startswith("-")
            value = left.pop() if has_value else "true"
        yield name, value


def read_users(path: str) -> dict[str, User]:
    """Read a token file: lines with a token, the user's name, uid and, in quotes, groups. Raises ConfigError."""
    users = {}
    with _reading("--token-auth-file"), open(path, newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            token, name, uid, groups = (*(field.strip() for field in row[:4]), "", "", "", "")[:4]
            if token and name:
                named = tuple(filter(None, (group.strip() for group in groups.split(","))))
                users[token] = User(name=name, uid=uid, groups=named)
    return users


def make_context(flags: Flags) -> ssl.SSLContext:
    """Return the TLS context for the flags; without a certificate, one is made in ``--cert-dir``.

    Raises ConfigError for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with _reading("--tls-cert-file, --tls-private-key-file or --cert-dir"):
        certificate, key = flags.tls_cert_file, flags.tls_private_key_file
        if not certificate:
            folder = pathlib.Path(flags.cert_dir)
            certificate, key = str(folder / "apiserver.crt"), str(folder / "apiserver.key")
            if not (os.path.exists(certificate) and os.path.exists(key)):
                _make_certificate(folder, flags.bind_address)
        context.load_cert_chain(certificate, key)
    if flags.client_ca_file:
        with _reading("--client-ca-file"):
            context.load_verify_locations(flags.client_ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


@contextlib.contextmanager
def _reading(flag: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, csv.Error) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"The files of {flag} cannot be used: {error}.") from error


def _make_certificate(folder: pathlib.Path, host: str) -> None:
    import trustme

    parts = _SERVICE.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    authority = trustme.CA()
    made = authority.issue_cert(*dict.fromkeys([host, "localhost", "127.0.0.1", "::1", *names]))
    folder.mkdir(parents=True, exist_ok=True)
    key = os.open(folder / "apiserver.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(key, "wb") as file:
        file.write(made.private_key_pem.bytes())
    # Clients that take this file for the CA of the server find the CA in it.
    (folder / "apiserver.crt").write_bytes(made.cert_chain_pems[0].bytes() + authority.cert_pem.bytes())


async def serve(flags: Flags, controllers: Sequence[str] = ()) -> None:
    """Serve a cluster by the flags until SIGTERM or SIGINT. Raises ConfigError for flags that cannot be met."""
    users = read_users(flags.token_auth_file) if flags.token_auth_file else {}
    token = os.environ.get(ADMIN_TOKEN)
    cluster = Cluster(authorization=flags.authorization, tokens=users, **cluster_options(token))
    await cluster.add_components()
    cluster.is_prompt = False  # what collects garbage is a controller
    start = functools.partial(
        serve_cluster,
        cluster,
        handler=make_admin(cluster, token, flags.bind_address),
        host=flags.bind_address,
        port=flags.secure_port,
        tls=make_context(flags),
        anonymous=flags.anonymous_auth,
    )
    running = cluster.open_controllers(*controllers) if controllers else contextlib.nullcontext()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with running, trio.open_nursery() as nursery:
            await nursery.start(start)
            await anext(signals)
            nursery.cancel_scope.cancel(reason="signal received")


def main(args: Sequence[str]) -> int:
    """Run the program, and return its exit code. Options that are wrong or have no effect are printed to stderr."""
    if "--version" in args:
        sys.stdout.write(f"Kubernetes {VERSION['gitVersion']}\n")
        return 0
    try:
        flags = parse_flags(args)
        if flags.ignored:
            ignored = ", ".join(f"--{name}" for name in flags.ignored)
            sys.stderr.write(f"kube-apiserver: flags without an effect on the embedded server: {ignored}\n")
        names = os.environ.get(CONTROLLERS, "").replace(",", " ").split()
        trio.run(serve, flags, names, clock=adjustable_clock(os.environ.get(ADMIN_TOKEN)))
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 -- all of them are reported
        from trioperator._logs import LogFormat, configure, get_logger
        from trioperator.cli.failures import report_failure

        configure(log_format=LogFormat.PLAIN)
        return report_failure(error, get_logger("kube-apiserver"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
