"""Manifests of deployments on a real API server: applied, and used by an operator outside of a pod."""

from __future__ import annotations

import base64
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import trustme
import yaml

from tests.controlplane import ControlPlane, free_ports
from tests.program import Program

# Kinds of others that the manifests use.
FOREIGN = {
    "certificates.cert-manager.io": "Certificate",
    "issuers.cert-manager.io": "Issuer",
    "servicemonitors.monitoring.coreos.com": "ServiceMonitor",
}


def define(name: str, kind: str, *, version: str = "v1") -> dict[str, Any]:
    """Return a CRD that accepts anything."""
    plural, _, group = name.partition(".")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [{**served, "subresources": {"status": {}}}],
        },
    }


class Deployed:
    """Manifests that are applied, and the operator in the container of their Deployment as a process here."""

    def __init__(
        self, controlplane: ControlPlane, folder: pathlib.Path, manifests: Iterable[Mapping[str, Any]]
    ) -> None:
        self._controlplane = controlplane
        self._folder = folder
        self.manifests = [dict(manifest) for manifest in manifests]
        [self.deployment] = [each for each in self.manifests if each["kind"] == "Deployment"]
        self.namespace, self.name = self.deployment["metadata"]["namespace"], self.deployment["metadata"]["name"]
        self.health, self.webhooks, self.metrics = free_ports(3)
        self._past = len(controlplane.requests(self.user))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def user(self) -> str:
        account = self.deployment["spec"]["template"]["spec"]["serviceAccountName"]
        return f"system:serviceaccount:{self.namespace}:{account}"

    def apply(self) -> None:
        """Apply the manifests, with the address of this machine in place of the Service of webhooks."""
        authority = trustme.CA()
        made = authority.issue_cert("127.0.0.1")
        made.private_key_pem.write_to_path(str(self._folder / "tls.key"))
        made.cert_chain_pems[0].write_to_path(str(self._folder / "tls.crt"))
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        for manifest in self.manifests:
            for hook in manifest.get("webhooks", ()):
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"] = {"url": f"https://127.0.0.1:{self.webhooks}{path}", "caBundle": bundle}
        definitions = [each for each in self.manifests if each["kind"] == "CustomResourceDefinition"]
        self._controlplane.apply(*definitions)
        names = [each["metadata"]["name"] for each in definitions]
        self._controlplane.kubectl("wait", "--for=condition=Established", "crd", *names, "--timeout=60s")
        self._controlplane.apply(*self.manifests)

    def redirect_webhooks(self, port: int) -> None:
        """Let the Service of webhooks be a port of this machine, as there is no network of Services."""
        self.webhooks = port
        for manifest in self.manifests:
            if manifest["kind"] == "Service":
                manifest["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            elif "conversion" in manifest.get("spec", {}):
                manifest["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port

    def start(
        self,
        command: Sequence[str] = (sys.executable, "-m", "trioperator", "run"),
        *,
        environ: Mapping[str, str] = os.environ,
        workdir: pathlib.Path | None = None,
        log: pathlib.Path | None = None,
    ) -> Program:
        """Start the operator with the arguments and the environment of its container, as its service account."""
        [container] = self.deployment["spec"]["template"]["spec"]["containers"]
        arguments = [
            *container["args"],
            f"--health=http://127.0.0.1:{self.health}",
            *([f"--metrics=http://127.0.0.1:{self.metrics}"] if "--metrics" in str(container["args"]) else []),
        ]
        variables = {each["name"]: each.get("value", "a-pod") for each in container.get("env", ())}
        variables |= {"WEBHOOKS_PORT": str(self.webhooks), "CERTIFICATES": str(self._folder)}
        here = {"TRIOPERATOR_WEBHOOKS_PORT": str(self.webhooks), "TRIOPERATOR_WEBHOOKS_CERTIFICATES": str(self._folder)}
        variables |= {name: value for name, value in here.items() if name in variables}
        log = log or self._folder / "log.txt"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=workdir or self._folder,
                env={**environ, **variables, "KUBECONFIG": str(self._write_kubeconfig())},
            )
        return Program(self._process, log)

    def _write_kubeconfig(self) -> pathlib.Path:
        account = self.user.rpartition(":")[2]
        config = yaml.safe_load(self._controlplane.kubeconfig.read_text())
        token = self._controlplane.kubectl("create", "token", account, f"--namespace={self.namespace}").strip()
        config["users"][0]["user"] = {"token": token}
        config["contexts"][0]["context"]["namespace"] = self.namespace  # that of the pod
        path = self._folder / "robot.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def forbidden(self) -> list[str]:
        """Return the requests that the service account was not allowed."""
        requests = self._controlplane.requests(self.user)[self._past :]
        events = [event for event in requests if event["user"]["username"] == self.user]
        assert events, "the operator has sent nothing"
        return [f"{event['verb']} {event['requestURI']}" for event in events if event["responseStatus"]["code"] == 403]

    def close(self) -> None:
        """Kill the operator, and delete its rights and webhooks."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        kinds = (
            "clusterroles,clusterrolebindings,roles,rolebindings"
            ",validatingwebhookconfigurations,mutatingwebhookconfigurations"
        )
        label = f"--selector=app.kubernetes.io/name={self.name}"
        self._controlplane.kubectl("delete", kinds, label, f"--namespace={self.namespace}")


@pytest.fixture
def foreign_kinds(controlplane: ControlPlane) -> Iterator[None]:
    """Create the kinds of others, and delete them afterwards."""
    controlplane.apply(*(define(name, kind) for name, kind in FOREIGN.items()))
    controlplane.kubectl("wait", "--for=condition=Established", "crd", *FOREIGN, "--timeout=60s")
    yield
    controlplane.kubectl("delete", "crd", *FOREIGN, "--timeout=60s")
