"""All options of admission handlers on a real control plane, whose API server has a client certificate for webhooks."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

HOOKS = "options.kopf.dev"
PASSWORD = "rotated"
OPERATOR = f"""
import ssl
import time
import trio
import trioperator as kopf

HOOKS = '{HOOKS}'

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.managed = HOOKS
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', host='localhost', path='/some/hooks', extra_sans=['extra.test'], cadump=DUMP,
        verify_cafile=AUTHORITY, verify_mode=ssl.CERT_REQUIRED)

@kopf.on.validate('kopfexamples', id='created', operation='CREATE', labels={{'test': 'operations'}})
@kopf.on.validate('kopfexamples', id='changed', operations=['UPDATE', 'DELETE'], labels={{'test': 'operations'}})
def deny(operation, spec, **_):
    if spec.get('deny') == operation:
        raise kopf.AdmissionError(f'No {{operation}}.', code=418)

@kopf.on.validate('kopfexamples', id='status', subresource='status', labels={{'test': 'subresource'}})
def status(status, subresource, **_):
    raise kopf.AdmissionError(f'No {{subresource}}.')

@kopf.on.validate('kopfexamples', id='effects', side_effects=True, labels={{'test': 'effects'}})
def effects(dryrun, warnings, sslpeer, **_):
    names = dict(pair for field in sslpeer['subject'] for pair in field)
    warnings.append(f"dryrun={{dryrun}}, by {{names['commonName']}}")

@kopf.on.validate('kopfexamples', id='ignored', ignore_failures=True, persistent=True, labels={{'test': 'ignored'}})
def ignored(**_):
    raise kopf.PermanentError('oops')

@kopf.on.validate('kopfexamples', id='slow', timeout=1, labels={{'test': 'slow'}})
async def slow(**_):
    await trio.sleep(60)

@kopf.on.validate('kopfexamples', id='namespace', namespace_selector={{'matchLabels': {{'webhooks': 'yes'}}}},
                  labels={{'test': 'namespace'}})
@kopf.on.validate('kopfexamples', id='condition', match_conditions={{'evil': "object.spec.field == 'evil'"}},
                  labels={{'test': 'condition'}})
@kopf.on.validate('kopfexamples', id='exact', match_policy='Exact', labels={{'test': 'exact'}})
@kopf.on.validate('kopfexamples', id='kept', persistent=True, labels={{'test': 'kept'}})
def never(**_):
    raise kopf.AdmissionError('Never.')

@kopf.on.mutate('kopfexamples', id='a-again', reinvocation_policy='IfNeeded', labels={{'test': 'again'}})
@kopf.on.mutate('kopfexamples', id='c-once', labels={{'test': 'again'}})
async def count(patch, annotations, param, **_):
    key = 'once' if param else 'again'
    patch.meta.annotations[key] = annotations.get(key, '') + 'x'

@kopf.on.mutate('kopfexamples', id='b-change', labels={{'test': 'again'}})
async def change(patch, **_):
    patch.spec['changed'] = True
"""


class Kubectl:
    """kubectl for objects with a label, on which the handlers depend."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def __call__(self, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self.plane.assets / "kubectl"), f"--kubeconfig={self.plane.kubeconfig}", *args]
        return subprocess.run(command, input=input, capture_output=True, text=True, timeout=60, check=False)

    def create(self, test: str, *options: str, namespace: str = "default", **spec: Any) -> Any:
        """Create an object; return its name and the error output, empty if all is well."""
        name = some_name()
        manifest = example(name, **spec)
        manifest["metadata"] |= {"labels": {"test": test}, "namespace": namespace}
        return name, self("create", "-f", "-", *options, input=json.dumps(manifest)).stderr


@pytest.fixture
def kubectl(controlplane: ControlPlane) -> Iterator[Kubectl]:
    yield Kubectl(controlplane)
    for kind in ("mutating", "validating"):
        controlplane.kubectl("delete", f"{kind}webhookconfigurations", HOOKS, "--ignore-not-found")


def test_each_option_does_what_is_documented(
    kubectl: Kubectl, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    plane, dump = kubectl.plane, tmp_path / "ca.pem"
    source = OPERATOR.replace("AUTHORITY", repr(str(plane.webhook_client_authority))).replace("DUMP", repr(str(dump)))
    operator = start_operator(source.replace("id='c-once',", "id='c-once', param=1,"))

    # The API server's own cache of the configurations follows them.
    expected = f'admission webhook "created.{HOOKS}" denied the request: No CREATE.'
    until(lambda: expected in kubectl.create("operations", deny="CREATE")[1])
    until(lambda: "Never." in kubectl.create("exact")[1])
    until(lambda: plane.get("kex", kubectl.create("again")[0])["metadata"].get("annotations"))
    name, denied = kubectl.create("operations", deny="UPDATE")
    assert denied == ""
    assert "No UPDATE." in kubectl("annotate", "kex", name, "a=b").stderr
    assert kubectl("delete", "kex", name).returncode == 0
    name, denied = kubectl.create("operations", deny="DELETE")
    assert denied == ""
    assert "No DELETE." in kubectl("delete", "kex", name).stderr

    config = plane.get("validatingwebhookconfigurations", HOOKS)["webhooks"][0]["clientConfig"]
    assert re.fullmatch(r"https://localhost:\d+/some/hooks/\S+", config["url"])
    assert base64.b64decode(config["caBundle"]) == dump.read_bytes()

    name, denied = kubectl.create("subresource")
    assert denied == ""
    patch = ("patch", "kex", name, "--type=merge", "-p")
    assert "No status." in kubectl(*patch, '{"status":{"a":"b"}}', "--subresource=status").stderr
    assert kubectl(*patch, '{"spec":{"a":"b"}}').returncode == 0

    assert kubectl.create("effects")[1] == "Warning: dryrun=False, by api-server\n"
    assert kubectl.create("effects", "--dry-run=server")[1] == "Warning: dryrun=True, by api-server\n"

    assert kubectl.create("ignored")[1] == "Warning: Webhook 'ignored' has failed, which is ignored: oops\n"

    began = time.monotonic()
    denied = kubectl.create("slow")[1]
    assert f'"slow.{HOOKS}"' in denied  # by the operator, or by the API server if the operator was too busy
    assert time.monotonic() - began < 30

    kubectl("create", "namespace", HOOKS.replace(".", "-"))
    assert kubectl.create("namespace", namespace=HOOKS.replace(".", "-"))[1] == ""
    kubectl("label", "namespace", HOOKS.replace(".", "-"), "webhooks=yes")
    until(lambda: "Never." in kubectl.create("namespace", namespace=HOOKS.replace(".", "-"))[1])

    assert kubectl.create("condition", field="good")[1] == ""
    assert "Never." in kubectl.create("condition", field="evil")[1]
    assert kubectl.create("other")[1] == ""

    name, denied = kubectl.create("again")
    assert denied == ""
    assert plane.get("kex", name)["metadata"]["annotations"] == {"again": "xx", "once": "x"}

    assert operator.stop() == 0
    hooks = plane.get("validatingwebhookconfigurations", HOOKS)["webhooks"]
    assert {hook["name"].removesuffix(f".{HOOKS}") for hook in hooks} == {"ignored", "kept"}
    assert f'failed calling webhook "kept.{HOOKS}"' in kubectl.create("kept")[1]
    assert kubectl.create("ignored")[1] == ""


CONTEXT = f"""
import pathlib
import ssl
import trioperator as kopf

@kopf.on.startup()
def configure(settings, **_):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT)
    context.load_verify_locations(AUTHORITY)
    context.verify_mode = ssl.CERT_REQUIRED
    settings.admission.managed = '{HOOKS}'
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', port=PORT, context=context, cadata=pathlib.Path(CA).read_bytes())

@kopf.on.validate('kopfexamples', id='check', labels={{'test': 'context'}})
def check(warnings, sslpeer, **_):
    warnings.append(str(dict(pair for field in sslpeer['subject'] for pair in field)['commonName']))
"""


def find_port() -> int:
    """Return a port that is free, and that no outgoing connection takes."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def test_a_context_of_the_users_own_is_served_at_a_fixed_port(
    kubectl: Kubectl, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    authority, port = trustme.CA(), find_port()
    files = {"CERT": tmp_path / "server.pem", "CA": tmp_path / "ca.pem"}
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(files["CERT"]))
    authority.cert_pem.write_to_path(str(files["CA"]))
    source = CONTEXT.replace("PORT", str(port)).replace("AUTHORITY", repr(str(kubectl.plane.webhook_client_authority)))
    for name, file in files.items():
        source = source.replace(f"({name})", f"({str(file)!r})")
    operator = start_operator(source)
    until(lambda: kubectl.create("context")[1] == "Warning: api-server\n")
    [hook] = kubectl.plane.get("validatingwebhookconfigurations", HOOKS)["webhooks"]
    assert hook["clientConfig"]["url"] == f"https://127.0.0.1:{port}/check"
    assert base64.b64decode(hook["clientConfig"]["caBundle"]) == authority.cert_pem.bytes()
    assert operator.stop() == 0


# The API server has a client certificate: without its CA, no call would succeed.
ROTATION = f"""
import pathlib
import ssl
import trioperator as kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.managed = '{HOOKS}'
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', certfile=CERT, pkeyfile=KEY, password='{PASSWORD}', cafile=CA, file_check_interval=0.1,
        verify_mode=ssl.CERT_REQUIRED, VERIFY)

@kopf.on.validate('kopfexamples', id='check', labels={{'test': 'rotation'}})
async def check(warnings, **_):
    warnings.append('called')
"""


def rotate(folder: pathlib.Path, authority: trustme.CA) -> None:
    """Replace the certificate as the kubelet does: all files at once, by a link."""
    made = authority.issue_cert("127.0.0.1")
    new = folder / f"data-{time.monotonic_ns()}"
    new.mkdir()
    (new / "tls.crt").write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
    key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    encrypted = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (new / "tls.key").write_bytes(encrypted)
    authority.cert_pem.write_to_path(str(new / "ca.crt"))
    (folder / "next").symlink_to(new.name)
    os.replace(folder / "next", folder / "data")


def write_rotation(folder: pathlib.Path, authority: trustme.CA, *, interval: float, verify: str) -> str:
    """Write a certificate, and return the operator that serves it, with the option for client certificates."""
    rotate(folder, authority)
    source = ROTATION.replace("file_check_interval=0.1", f"file_check_interval={interval}").replace("VERIFY", verify)
    for name, file in {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}.items():
        source = source.replace(f"={name}", f"={str(folder / 'data' / file)!r}")
    return source


def hash_authority(authority: pathlib.Path, folder: pathlib.Path) -> None:
    """Copy a CA into a folder under the name by which OpenSSL looks for it."""
    command = ["openssl", "x509", "-noout", "-hash", "-in", str(authority)]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    folder.mkdir()
    shutil.copy(authority, folder / f"{name}.0")


class Load:
    """Writes to the API server, 50 per second, each of which calls the webhook."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = f"{plane.read_kubeconfig()['server']}/apis/kopf.dev/v1/namespaces/default/kopfexamples?dryRun=All"
        self._manifest = example(some_name())
        self._manifest["metadata"]["labels"] = {"test": "rotation"}
        self.outcomes: list[tuple[int, str | None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write within the block, as soon as the webhook is called; every write must be reviewed."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": "Bearer admin-token"}
        async with httpx.AsyncClient(verify=trusting, headers=headers, timeout=30) as client:
            with trio.fail_after(60):
                while self.outcomes[-1:] != [(201, '299 - "called"')]:
                    await self._create(client)
            self.outcomes.clear()
            async with trio.open_nursery() as writers:
                stopped = trio.Event()
                writers.start_soon(self._write, client, writers, stopped)
                yield
                stopped.set()
        assert set(self.outcomes) == {(201, '299 - "called"')}

    async def _write(self, client: httpx.AsyncClient, writers: trio.Nursery, stopped: trio.Event) -> None:
        while not stopped.is_set():
            writers.start_soon(self._create, client)
            await trio.sleep(0.02)

    async def _create(self, client: httpx.AsyncClient) -> None:
        response = await client.post(self._url, json=self._manifest)
        self.outcomes.append((response.status_code, response.headers.get("warning")))


async def test_certificates_rotate_under_load_without_a_failed_call(
    kubectl: Kubectl, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    authority, hashed = trustme.CA(), tmp_path / "hashed"
    hash_authority(kubectl.plane.webhook_client_authority, hashed)
    source = write_rotation(tmp_path, authority, interval=0.1, verify=f"verify_capath={str(hashed)!r}")
    operator = await trio.to_thread.run_sync(start_operator, source)
    async with Load(kubectl.plane).running():
        for _ in range(4):
            await trio.sleep(0.7)
            rotate(tmp_path, authority)
        await trio.sleep(0.7)
    assert operator.output.count("The certificates of the webhook server have been reloaded.") >= 1
    assert await trio.to_thread.run_sync(operator.stop) == 0


async def test_the_ca_rotates_under_load_without_a_failed_call(
    kubectl: Kubectl, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    clients = str(kubectl.plane.webhook_client_authority)
    verify = f"verify_cadata=pathlib.Path({clients!r}).read_text()"
    source = write_rotation(tmp_path, trustme.CA(), interval=2, verify=verify)
    operator = await trio.to_thread.run_sync(start_operator, source)

    def read_authority() -> bytes:
        [hook] = kubectl.plane.get("validatingwebhookconfigurations", HOOKS)["webhooks"]
        return base64.b64decode(hook["clientConfig"]["caBundle"])

    async with Load(kubectl.plane).running():
        authority = trustme.CA()
        rotate(tmp_path, authority)
        with trio.fail_after(60):  # until the old CA is dropped
            while await trio.to_thread.run_sync(read_authority) != authority.cert_pem.bytes():  # noqa: ASYNC110 -- a poll
                await trio.sleep(0.1)
        await trio.sleep(0.5)
    assert await trio.to_thread.run_sync(operator.stop) == 0
