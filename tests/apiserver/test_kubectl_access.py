"""Authentication and authorization of kubectl: over TLS, as it sends no tokens otherwise."""

from __future__ import annotations

import pathlib
from functools import partial

import pytest
import trio

from tests.apiserver.kubectl import KUBECTL, Kubectl
from trioperator.apiserver import Cluster, User, serve_cluster, write_kubeconfig

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="put kubectl on PATH, or its folder into KUBEBUILDER_ASSETS")


@pytest.fixture
async def guarded(nursery: trio.Nursery) -> tuple[Cluster, str]:
    """Serve a cluster with RBAC; yield it with its URL."""
    cluster = Cluster(authorization="rbac")
    return cluster, str(await nursery.start(partial(serve_cluster, cluster, tls=True, anonymous=False)))


def kubectl_of(guarded: tuple[Cluster, str], folder: pathlib.Path, user: User | None, certificate: bool) -> Kubectl:
    cluster, url = guarded
    config = cluster.kubeconfig(url) if user is None else cluster.kubeconfig(url, user=user, certificate=certificate)
    path = folder / f"kubeconfig-{user.name if user else 'admin'}-{certificate}"
    write_kubeconfig(str(path), config)
    return Kubectl(path)


async def rejected(kubectl: Kubectl, *args: str) -> str:
    """Run kubectl; return its error message."""
    with pytest.raises(AssertionError) as caught:
        await kubectl(*args)
    return str(caught.value)


@pytest.fixture
def kubectl(guarded: tuple[Cluster, str], tmp_path: pathlib.Path) -> Kubectl:
    return kubectl_of(guarded, tmp_path, None, False)


async def test_whoami_shows_the_user(kubectl: Kubectl) -> None:
    said = await kubectl("auth", "whoami")
    assert "kubernetes-admin" in said
    assert "system:masters" in said
    said = await kubectl("auth", "whoami", "--as", "anna", "--as-group", "people", "--as-uid", "1")
    assert "anna" in said
    assert "[people system:authenticated]" in said


async def test_can_i_reviews_access(guarded: tuple[Cluster, str], kubectl: Kubectl) -> None:
    assert (await kubectl("auth", "can-i", "delete", "pods")).strip() == "yes"
    assert "no" in (await rejected(kubectl, "auth", "can-i", "delete", "pods", "--as", "anna")).split()
    await kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log,deployments.apps")
    await kubectl("create", "rolebinding", "reader", "--role=reader", "--user=anna")
    assert (await kubectl("auth", "can-i", "list", "pods", "--as", "anna")).strip() == "yes"
    assert (await kubectl("auth", "can-i", "get", "pods", "--subresource=log", "--as", "anna")).strip() == "yes"
    assert (await kubectl("auth", "can-i", "get", "/version", "--as", "anna")).strip() == "yes"
    assert "no" in (await rejected(kubectl, "auth", "can-i", "list", "pods", "-A", "--as", "anna")).split()
    table = await kubectl("auth", "can-i", "--list", "--as", "anna")
    assert "deployments.apps" in table
    assert "[get list]" in table
    assert "selfsubjectaccessreviews.authorization.k8s.io" in table


async def test_a_forbidden_command_names_the_missing_permission(kubectl: Kubectl) -> None:
    said = await rejected(kubectl, "get", "pods", "--as", "anna")
    assert 'Error from server (Forbidden): pods is forbidden: User "anna" cannot list resource "pods"' in said
    said = await rejected(kubectl, "delete", "namespace", "default", "--as", "anna")
    assert 'namespaces "default" is forbidden: User "anna" cannot delete resource "namespaces"' in said


async def test_roles_can_be_described(kubectl: Kubectl) -> None:
    assert "cluster-admin" in await kubectl("get", "clusterroles")
    assert "cluster-admin" in await kubectl("get", "clusterrolebindings", "-o", "wide")
    assert "system:masters" in await kubectl("describe", "clusterrolebinding", "cluster-admin")
    described = await kubectl("describe", "clusterrole", "system:basic-user")
    assert "selfsubjectaccessreviews.authorization.k8s.io" in described


async def test_a_role_is_reconciled(kubectl: Kubectl) -> None:
    role = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
"""
    assert "reconciled" in await kubectl("auth", "reconcile", "-f", "-", text=role)
    await kubectl("auth", "reconcile", "-f", "-", text=role.replace("[get]", "[list]"))
    shown = await kubectl("get", "role", "reader", "-o", "jsonpath={.rules[*].verbs}")
    assert sorted(shown.translate(str.maketrans('[]",', "    ")).split()) == ["get", "list"]


async def test_a_service_account_gets_a_token(
    guarded: tuple[Cluster, str], kubectl: Kubectl, tmp_path: pathlib.Path
) -> None:
    await kubectl("create", "serviceaccount", "robot")
    token = (await kubectl("create", "token", "robot", "--duration=20m")).strip()
    stranger = kubectl_of(guarded, tmp_path, User(name="stranger"), False)
    said = await stranger("auth", "whoami", f"--token={token}")
    assert "system:serviceaccount:default:robot" in said
    assert "You must be logged in" in await rejected(stranger, "get", "pods", "--token=unknown")


@pytest.mark.parametrize("certificate", [False, True])
async def test_a_kubeconfig_is_for_a_user(
    guarded: tuple[Cluster, str], tmp_path: pathlib.Path, certificate: bool
) -> None:
    kubectl = kubectl_of(guarded, tmp_path, User(name="anna", groups=("people", "friends")), certificate)
    said = await kubectl("auth", "whoami")
    assert "anna" in said
    assert "[people friends system:authenticated]" in said
    assert 'User "anna" cannot list resource "pods"' in await rejected(kubectl, "get", "pods")
