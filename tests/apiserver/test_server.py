"""Clusters served on a port."""

from __future__ import annotations

import base64
import ssl
from functools import partial

import httpx
import pytest
import trio

from trioperator.apiserver import Cluster, serve_cluster
from trioperator.errors import ConfigError


async def test_tls_is_served_with_the_ca_of_the_cluster(cluster: Cluster, nursery: trio.Nursery) -> None:
    url = await nursery.start(partial(serve_cluster, cluster, tls=True))
    config = cluster.kubeconfig(url)
    ca_data = config["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(ca_data).decode())
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
        assert (await client.get("/readyz")).text == "ok"
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(base_url=url, timeout=60) as stranger:
            await stranger.get("/readyz")
    with trio.fail_after(60):
        async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
            assert (await client.get("/readyz")).text == "ok"  # the stranger has done no harm


async def test_a_port_that_is_in_use_is_a_config_error(cluster: Cluster, cluster_url: str) -> None:
    port = httpx.URL(cluster_url).port or 0
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        await serve_cluster(cluster, port=port)
