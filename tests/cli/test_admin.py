"""Tests for :mod:`trioperator.cli.admin`: the admin endpoint of ``trioperator cluster`` and of its kube-apiserver."""

from __future__ import annotations

import json
import os
import pathlib
import ssl
import subprocess
import sys

import httpx
import pytest

from tests.controlplane import free_ports
from trioperator.apiserver import Cluster
from trioperator.cli.admin import adjustable_clock, cluster_options, make_admin
from trioperator.cli.cluster import ClusterOptions, run_cluster
from trioperator.cli.failures import USAGE_ERROR

PATH = "/api/v1/namespaces/default/configmaps"


def test_without_a_file_there_is_none(cluster: Cluster) -> None:
    assert adjustable_clock(None) is None
    assert cluster_options("") == {"log_limit": 0}
    assert make_admin(cluster, None, "0.0.0.0") is None


def test_it_is_served_on_loopback_addresses_only(tmp_path: pathlib.Path) -> None:
    options = ClusterOptions(admin_token=str(tmp_path / "token"), host="0.0.0.0")
    assert run_cluster(options, echo=lambda _: None) == USAGE_ERROR


def make_client(url: str) -> httpx.Client:
    """Return a client that waits for the server, with backoff, until it listens."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return httpx.Client(base_url=url, transport=httpx.HTTPTransport(verify=context, retries=9), timeout=60)


@pytest.mark.parametrize("program", ["cluster", "kube-apiserver"])
def test_time_is_advanced_and_timestamps_follow(tmp_path: pathlib.Path, program: str) -> None:
    (port,) = free_ports(1)
    commands = {
        "cluster": ["trioperator", "cluster", f"--port={port}", f"--kubeconfig={tmp_path}/kubeconfig"],
        "kube-apiserver": ["trioperator.cli.kube_apiserver", f"--secure-port={port}", f"--cert-dir={tmp_path}"],
    }
    (tmp_path / "token").write_text("x" * 32)
    variables = {"TRIOPERATOR_CLUSTER_ADMIN_TOKEN": str(tmp_path / "token")}
    command = [sys.executable, "-m", *commands[program]]
    with subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL) as process:
        try:
            with make_client(f"https://127.0.0.1:{port}") as client:
                client.get("/readyz")
                if program == "cluster":
                    config = json.loads((tmp_path / "kubeconfig").read_text())
                    client.headers["Authorization"] = f"Bearer {config['users'][0]['user']['token']}"
                headers = {"Authorization": f"Bearer {'x' * 32}"}
                body = {"metadata": {"name": "a"}}
                before = client.post(PATH, json=body).json()["metadata"]["creationTimestamp"]
                shown = client.post("/trioperator/time", json={"advance": 86400, "rate": 2}, headers=headers).json()
                assert shown["rate"] == 2
                body = {"metadata": {"name": "b"}}
                after = client.post(PATH, json=body).json()["metadata"]["creationTimestamp"]
                assert before[:10] < after[:10] == shown["now"][:10]
                client.post("/trioperator/reset", headers=headers)
                assert client.get("/trioperator/time", headers=headers).json()["rate"] == 1
                assert client.get(PATH).json()["items"] == []
        finally:
            process.terminate()
