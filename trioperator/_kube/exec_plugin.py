"""Exec plugins of kubeconfigs: programs that print credentials (``client.authentication.k8s.io/v1`` and ``v1beta1``).

A plugin runs without a terminal, for a limited time, and its output is limited, too. Errors are one line, with the end
of what the plugin has printed on stderr; what it has printed on stdout and its environment are secrets.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import datetime
import functools
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator.errors import ConfigError, LoginError

_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Seconds until a plugin is killed; the plugins of clouds take a few.
_TIMEOUT: Final = 60.0
# Bytes of each of stdout and stderr.
_OUTPUT_LIMIT: Final = 1024 * 1024
# Characters of stderr in a message.
_SHOWN: Final = 300
# Strings that look like a token or a key.
_SECRET: Final = re.compile(r"[\w.+=~-]{32,}")
# Environment variables as short as this are no secrets, and parts of many words.
_MIN_SECRET: Final = 4


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as configured. A command such as ``./login`` is relative to ``folder``, where the kubeconfig is."""

    command: str
    api_version: str
    folder: Path
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}  # secret
    install_hint: str | None = None
    provide_cluster_info: bool = False


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime.datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    status: _Status | None = None


def parse_exec_plugin(value: object, *, folder: Path) -> ExecPlugin:
    """Parse the ``exec`` section of a user. Raises ConfigError."""
    if not isinstance(value, dict):
        raise ConfigError("exec is not a mapping.")
    version, command, args = value.get("apiVersion"), value.get("command"), value.get("args") or []
    if version not in _VERSIONS:
        raise ConfigError(
            f"exec.apiVersion is {version!r}, which is not supported: use {_VERSIONS[0]} and a newer plugin."
        )
    if not isinstance(command, str) or not command:
        raise ConfigError("exec.command is missing, or not a string.")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise ConfigError("exec.args is not a list of strings.")
    _check_mode(value.get("interactiveMode"), required=version == _VERSIONS[0])
    hint = value.get("installHint")
    return ExecPlugin(
        command=command,
        api_version=version,
        folder=folder,
        args=tuple(args),
        env=_parse_env(value.get("env") or []),
        install_hint=hint if isinstance(hint, str) else None,
        provide_cluster_info=value.get("provideClusterInfo") is True,
    )


def _check_mode(mode: object, *, required: bool) -> None:
    if mode is None and not required:
        return
    if mode not in ("Never", "IfAvailable", "Always"):
        raise ConfigError(f"exec.interactiveMode is {mode!r}: it must be Never, IfAvailable or Always.")
    if mode == "Always":
        raise ConfigError(
            "exec.interactiveMode is Always, but an operator has no terminal: configure the plugin without interaction."
        )


def _parse_env(value: object) -> Mapping[str, str]:
    if not isinstance(value, list):
        raise ConfigError("exec.env is not a list.")
    env: dict[str, str] = {}
    for item in value:
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("name", "value")):
            raise ConfigError("exec.env has an item without a name and a value, both strings.")
        env[item["name"]] = item["value"]
    return env


def run_exec_plugin(plugin: ExecPlugin, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Run a plugin and return the fields of a connection that it provides: token, certificate and key, expiration.

    *cluster* is the cluster as plugins get it, in ``$KUBERNETES_EXEC_INFO``. Call it in a thread. Raises LoginError.
    """
    spec = {"interactive": False, **({"cluster": cluster} if plugin.provide_cluster_info else {})}
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        with (
            subprocess.Popen(
                [_find_program(plugin), *plugin.args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # what it has started is killed with it
            ) as process,
            _killed_at_exit(process),
        ):
            stdout, stderr = _communicate(plugin, process)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise LoginError(f"The exec plugin {plugin.command!r} cannot be run: {reason}.") from exc
    if process.returncode:
        raise LoginError(
            f"The exec plugin {plugin.command!r} failed with exit code {process.returncode}{_quote(plugin, stderr)}"
        )
    return _parse_output(plugin, stdout, stderr)


def _find_program(plugin: ExecPlugin) -> str:
    """Return the path of the program, as client-go finds it: on ``$PATH``, unless the command has a slash.

    Relative entries of ``$PATH`` do not count: whoever writes to the current directory must not get the credentials.
    """
    if "/" in plugin.command:
        path = plugin.folder / plugin.command
        found = str(path) if path.is_file() else None
    else:
        entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
        found = shutil.which(plugin.command, path=os.pathsep.join(filter(os.path.isabs, entries)))
    if found is None:
        place = f"{plugin.folder / plugin.command} does not exist" if "/" in plugin.command else "it is not on $PATH"
        hint = f" {' '.join(plugin.install_hint.split())}" if plugin.install_hint else " Install it."
        raise LoginError(f"The exec plugin {plugin.command!r} is not installed: {place}.{hint}")
    return found


def _communicate(plugin: ExecPlugin, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return stdout and stderr once the process has ended. Kill it if it takes too long or prints too much."""
    assert process.stdout is not None
    assert process.stderr is not None
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    deadline = time.monotonic() + _TIMEOUT
    try:
        with selectors.DefaultSelector() as selector:
            for pipe in output:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                    buffer = output[key.fileobj]  # type: ignore[index]  # the file objects are those registered above
                    buffer += data
                    if len(buffer) > _OUTPUT_LIMIT:
                        raise LoginError(f"The exec plugin {plugin.command!r} printed more than {_OUTPUT_LIMIT} bytes.")
                if not ready and time.monotonic() >= deadline:
                    raise subprocess.TimeoutExpired(plugin.command, _TIMEOUT)
        process.wait(max(0.1, deadline - time.monotonic()))
    except BaseException as exc:
        _kill(process)
        if not isinstance(exc, subprocess.TimeoutExpired):
            raise
        stderr = _quote(plugin, bytes(output[process.stderr]))
        raise LoginError(f"The exec plugin {plugin.command!r} has not ended within {_TIMEOUT:g} s{stderr}") from None
    return bytes(output[process.stdout]), bytes(output[process.stderr])


@contextlib.contextmanager
def _killed_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a plugin when this process ends in the block: a stopped operator does not wait for the thread."""
    kill = functools.partial(_kill, process)
    atexit.register(kill)
    try:
        yield
    finally:
        atexit.unregister(kill)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a plugin with what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _parse_output(plugin: ExecPlugin, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """Return the fields of a connection from an ``ExecCredential``. Raises LoginError, which does not show it."""
    problem = _quote(plugin, stderr)
    try:
        credential = msgspec.json.decode(stdout, type=_ExecCredential)
    except DECODE_ERRORS:
        raise LoginError(f"The exec plugin {plugin.command!r} did not print an ExecCredential{problem}") from None
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        raise LoginError(
            f"The exec plugin {plugin.command!r} printed another kind or version than the ExecCredential of"
            f" {plugin.api_version} that it is configured for{problem}"
        )
    status = credential.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise LoginError(f"The exec plugin {plugin.command!r} printed a certificate or a key, but not both{problem}")
    if not status.token and not status.client_certificate_data:
        raise LoginError(f"The exec plugin {plugin.command!r} printed neither a token nor a certificate{problem}")
    fields = {
        "token": status.token,
        "certificate_data": status.client_certificate_data,
        "private_key_data": status.client_key_data,
        "expiration": status.expiration_timestamp,
    }
    return {key: value for key, value in fields.items() if value}


def _quote(plugin: ExecPlugin, stderr: bytes) -> str:
    """Return the end of a message: the end of stderr in one line, without secrets."""
    text = " ".join(stderr.decode(errors="replace").split())
    for value in sorted(plugin.env.values(), key=len, reverse=True):
        if len(value) >= _MIN_SECRET:
            text = text.replace(value, "…")
    text = _SECRET.sub("…", "".join(c if c.isprintable() else "?" for c in text))
    text = text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
    return f": {text}" if text else ", and printed nothing on stderr."


def describe_cluster(fields: Mapping[str, Any], config: object) -> dict[str, Any]:
    """Return a cluster as plugins get it, from the fields of its connection and its extension. Raises ConfigError."""
    ca = fields.get("ca_data")
    if ca is None and (path := fields.get("ca_path")) is not None:
        try:
            ca = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"The certificate authority {path} cannot be read.") from exc
    cluster = {
        "server": fields["server"],
        "tls-server-name": fields.get("tls_server_name"),
        "insecure-skip-tls-verify": fields.get("insecure"),
        "certificate-authority-data": ca and base64.b64encode(ca.encode()).decode(),
        "proxy-url": fields.get("proxy_url"),
        "config": config,
    }
    return {key: value for key, value in cluster.items() if value is not None}
