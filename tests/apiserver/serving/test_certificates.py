"""TLS client certificates, signed by the cluster's own CA."""

from __future__ import annotations

import pathlib
import ssl
from functools import partial

import httpx
import pytest
import trio

from trioperator.apiserver import Cluster, User, serve_cluster
from trioperator.apiserver.serving.certificates import CertificateAuthority, user_of_certificate

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def client_context(
    authority: CertificateAuthority, folder: pathlib.Path, user: User | None, signer: CertificateAuthority
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if user is not None:
        certificate, key = signer.issue(user)
        path = folder / "client.pem"
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context


@pytest.fixture
async def url(cluster: Cluster, nursery: trio.Nursery) -> str:
    return str(await nursery.start(partial(serve_cluster, cluster, tls=True)))


async def test_a_client_certificate_authenticates_the_user(cluster: Cluster, url: str, tmp_path: pathlib.Path) -> None:
    anna = User(name="anna", groups=("people", "system:masters"))
    context = client_context(cluster.ca, tmp_path, anna, cluster.ca)
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
        headers = {"Authorization": "Bearer unknown"}  # the certificate goes first
        assert (await client.get(CONFIG_MAPS, headers=headers)).status_code == 200
    assert [record.user for record in cluster.requests] == ["anna"]


async def test_a_client_certificate_is_optional(cluster: Cluster, url: str, tmp_path: pathlib.Path) -> None:
    context = client_context(cluster.ca, tmp_path, None, cluster.ca)
    async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
        assert (await client.get(CONFIG_MAPS)).status_code == 200
    assert [record.user for record in cluster.requests] == ["system:anonymous"]


async def test_a_certificate_of_another_ca_is_rejected(cluster: Cluster, url: str, tmp_path: pathlib.Path) -> None:
    context = client_context(cluster.ca, tmp_path, User(name="anna"), CertificateAuthority())
    with pytest.raises(httpx.TransportError):
        async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
            await client.get(CONFIG_MAPS)
    assert len(cluster.requests) == 0


def test_a_ca_can_be_restored() -> None:
    first = CertificateAuthority()
    second = CertificateAuthority(first.pem)
    assert second.certificate == first.certificate
    assert second.pem == first.pem


def test_the_subject_names_the_user() -> None:
    subject = ((("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "anna"),))
    assert user_of_certificate({"subject": subject}) == User(name="anna", groups=("a", "b", "system:authenticated"))
    assert user_of_certificate({"subject": ((("organizationName", "a"),),)}) is None
    assert user_of_certificate({}) is None
    assert user_of_certificate(None) is None
