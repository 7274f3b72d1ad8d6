"""The rights that `trioperator rbac` prints, on both API servers: operators with these and no others are never refused.

Each test is an operator with another set of features, which runs as a service account, in the whole cluster, in one
namespace, and in those of a pattern. No request of it is answered with HTTP 403: the log of the embedded server, and
the audit log of the real one, say so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest
import trio

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import CONFIGMAPS, CRDS, GADGETS, NAMESPACES, OPEN, PLANETS, WIDGETS, config_map, define, manifest
from tests.controlplane import ControlPlane
from tests.coordination.peers import peering, peering_crd
from trioperator import crds
from trioperator._handling.handlers.children import Strategy
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection import load_connection
from trioperator._kube.discovery import discover
from trioperator._model.resource import Resource
from trioperator._tooling.permissions import list_permissions, make_roles
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.cli.rbac import RbacOptions, make_requirements
from trioperator.errors import ApiError, NotFoundError
from trioperator.settings import OperatorSettings

on = trioperator.on

ACCOUNTS = Resource("", "v1", "serviceaccounts", kind="ServiceAccount")
LEASES = Resource("coordination.k8s.io", "v1", "leases", kind="Lease")
SECRETS = Resource("", "v1", "secrets", kind="Secret")
EVENTS = Resource("", "v1", "events", kind="Event")
RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Body = dict[str, Any]


class Robot(Server):
    """An API server, and a service account on it that gets the rights of an operator."""

    def __init__(self, admin: ApiClient, *, plane: ControlPlane | None, cluster: Cluster | None) -> None:
        connection = load_connection([plane.kubeconfig]) if plane else trioperator.ConnectionInfo(server="")
        super().__init__(connection, admin, is_real=plane is not None)
        self.user = f"system:serviceaccount:{self.namespace}:robot"
        self._plane, self._cluster = plane, cluster

    def forbidden(self) -> set[str]:
        """Return what the operator was refused; there must be something that it was not."""
        if self._cluster is not None:
            records = self._cluster.requests.select(user=self.user)
            assert records
            return {f"{each.verb} {each.path}" for each in records if each.status == 403}
        assert self._plane is not None
        events = [e for e in self._plane.requests(self.user) if e["user"]["username"] == self.user]
        assert events
        return {f"{e['verb']} {e['requestURI']}" for e in events if e["responseStatus"]["code"] == 403}

    def patterns_of(self, scope: str) -> tuple[str, ...]:
        """Return the patterns of namespaces of an operator."""
        return {"cluster": (), "exact": (self.namespace,), "pattern": (f"{self.namespace[:-1]}?",)}[scope]

    async def grant(self, scope: str, **options: Any) -> tuple[str, ...]:
        """Grant the account what the operator needs with these options; return the patterns of namespaces."""
        patterns = self.patterns_of(scope)
        settings = {"name": self.namespace, "account": (self.namespace, "robot"), "namespaces": patterns}
        resources = (await discover(self.admin)).resources
        requirements, problems = make_requirements(
            RbacOptions(**{"standalone": True, **settings, **options}), resources, self.registry.declared_kinds()
        )
        permissions = list_permissions(tuple(self.registry), resources, requirements)
        assert (*problems, *permissions.problems) == ()
        for role in make_roles(permissions, name=self.namespace, account=(self.namespace, "robot")):
            plural = f"{role['kind'].lower()}s"
            kind = Resource(RBAC, "v1", plural, kind=role["kind"], namespaced="namespace" in role["metadata"])
            await self.admin.post(kind.get_path(namespace=role["metadata"].get("namespace")), role)
        await self._log_in()
        places = [(None, permissions.cluster), *permissions.namespaces.items()]
        async with open_client(lambda: self.connection, settings=self.settings) as client:
            for namespace, rules in places:
                for rule in rules:
                    wanted = {"group": rule.group, "resource": rule.resource.partition("/")[0], "namespace": namespace}
                    wanted |= {"subresource": rule.resource.partition("/")[2], "verb": min(rule.verbs)}
                    await _wait_granted(client, wanted | {"name": min(rule.names, default="")})
        return patterns

    async def _log_in(self) -> None:
        path = f"{ACCOUNTS.get_path(namespace=self.namespace, name='robot')}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await self.admin.post(path, request))["status"]["token"]
        self.connection = dataclasses.replace(self.connection, token=token, username=None, password=None)


async def _wait_granted(client: ApiClient, wanted: Mapping[str, Any]) -> None:
    """Wait until the API server has noticed a right: a real one reads roles with a delay."""
    review: Body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review |= {"spec": {"resourceAttributes": {key: value for key, value in wanted.items() if value}}}
    with trio.fail_after(30):
        while True:
            if (await client.post(REVIEWS, review))["status"]["allowed"]:
                return
            await trio.sleep(0.05)


@pytest.fixture
async def robot(plane: ControlPlane | None, tmp_path: pathlib.Path) -> AsyncIterator[Robot]:
    """Yield one of both API servers with RBAC, the kinds of these tests, and an account in a namespace of its own."""
    async with trio.open_nursery() as nursery:
        cluster, admins = None, tmp_path / "kubeconfig"
        if plane is None:
            cluster = Cluster(authorization="rbac")
            url = await nursery.start(serve_cluster, cluster)
            admins.write_bytes(msgspec.json.encode(cluster.kubeconfig(str(url))))
        settings = OperatorSettings()
        settings.watching.inactivity_timeout = math.inf
        async with open_client(
            lambda: load_connection([plane.kubeconfig if plane else admins]), settings=settings
        ) as admin:
            robot = Robot(admin, plane=plane, cluster=cluster)
            if plane is None:
                robot.connection = load_connection([admins])
            async with trio.open_nursery() as definers:
                for kind in (WIDGETS, GADGETS, PLANETS):
                    definers.start_soon(robot.define, define(kind, has_status=kind is not GADGETS))
            await robot.create(NAMESPACES, _named("v1", "Namespace", robot.namespace))
            await robot.create(ACCOUNTS, _named("v1", "ServiceAccount", "robot"))
            yield robot
        nursery.cancel_scope.cancel()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that lists what an operator has warned of, but requests that are tried again."""

    def warnings() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        return [text for text in texts if "retrying" not in text]

    return warnings


scopes = pytest.mark.parametrize("scope", ["cluster", "exact", "pattern"])


def _named(api_version: str, kind: str, name: str, **rest: Any) -> Body:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}


@contextlib.asynccontextmanager
async def running(
    robot: Robot, scope: str, *, options: Mapping[str, Any] | None = None, **rights: Any
) -> AsyncIterator[None]:
    """Run the operator with its rights during the block; nothing that it requests may be forbidden, even at the end."""
    patterns = await robot.grant(scope, **rights)
    async with robot.operating(namespaces=patterns, clusterwide=not patterns, **(options or {"standalone": True})):
        yield
    assert robot.forbidden() == set()


# Handlers of objects.


@scopes
async def test_handlers_of_changes_events_and_background_tasks(
    robot: Robot, scope: str, quiet: Callable[[], list[str]]
) -> None:
    registry, settings = robot.registry, robot.settings
    settings.posting.enabled = True

    @on.create("widgets", registry=registry)
    @on.update("widgets", registry=registry)
    async def change(patch: trioperator.Patch, logger: Any) -> str:
        patch.metadata.labels["seen"] = "yes"
        patch.fns.append(lambda body: body.setdefault("status", {}).update(counted=1))
        logger.info("posted as an Event")

        @trioperator.on.subhandler(id="sub")
        async def sub() -> str:
            return "done"

        return "done"

    @on.delete("widgets", registry=registry)
    async def delete(body: Any) -> None:
        trioperator.info(body, reason="Deleting", message="posted, too")

    @trioperator.daemon("widgets", registry=registry)
    async def daemon(stopped: trioperator.DaemonStopped, body: Any, patch: trioperator.Patch) -> None:
        trioperator.Conditions(body, patch).set("Watched", True, reason="Daemon")
        await stopped.wait()

    @trioperator.timer("gadgets", id="timer", interval=1, registry=registry)
    async def timer() -> Body:
        return {"ran": 1}

    @on.event("configmaps", labels={"ours": "yes"}, registry=registry)
    async def see(patch: trioperator.Patch) -> None:
        patch.metadata.annotations["seen"] = "yes"

    @trioperator.index("secrets", registry=registry)
    async def names(name: str) -> str:
        return name

    async with running(robot, scope):
        for kind, body in ((WIDGETS, manifest(WIDGETS)), (GADGETS, manifest(GADGETS)), (CONFIGMAPS, config_map("one"))):
            await robot.create(kind, body)
        await robot.until_handled(WIDGETS, "one", size=1)
        await robot.until(WIDGETS, "one", lambda body: body["metadata"].get("labels") == {"seen": "yes"})
        await robot.until(CONFIGMAPS, "one", lambda body: "seen" in body["metadata"].get("annotations", {}))
        await robot.until(GADGETS, "one", lambda body: "timer" in body.get("status", {}))
        await robot.patch(WIDGETS, "one", {"spec": {"size": 2}})
        await robot.until_handled(WIDGETS, "one", size=2)
        for kind in (WIDGETS, GADGETS):
            await robot.delete(kind, "one")
            await robot.until_gone(kind, "one")
        posted = await robot.admin.list_page(EVENTS.get_path(namespace=robot.namespace))
        assert posted.items
    assert quiet() == []


@scopes
async def test_handlers_of_cluster_scoped_kinds_which_have_their_events_in_a_namespace(
    robot: Robot, scope: str
) -> None:
    robot.settings.posting.enabled = True
    name = f"p{robot.mark}"

    @on.create("planets", field="metadata.name", value=name, registry=robot.registry)
    @on.delete("planets", field="metadata.name", value=name, registry=robot.registry)
    async def handle(logger: Any) -> None:
        logger.info("posted as an Event")

    async with running(robot, scope):
        await robot.create(PLANETS, manifest(PLANETS, name))
        await robot.until_handled(PLANETS, name, size=1)
        await robot.delete(PLANETS, name)
        await robot.until_gone(PLANETS, name)


# Reconcile handlers: each strategy, with and without labels.


@pytest.mark.parametrize("labels", [None, {"part-of": "rights"}])
@pytest.mark.parametrize("strategy", ["in_place", "recreate", "on_delete", "rolling"])
async def test_children(robot: Robot, strategy: Strategy, labels: dict[str, str] | None) -> None:
    await live_with_children(robot, "cluster", strategy=strategy, labels=labels)


@pytest.mark.parametrize("scope", ["exact", "pattern"])
async def test_children_in_namespaces(robot: Robot, scope: str) -> None:
    await live_with_children(robot, scope, strategy="recreate", labels={"part-of": "rights"})


async def live_with_children(robot: Robot, scope: str, *, strategy: Strategy, labels: dict[str, str] | None) -> None:
    """Let children come, change, be in the way, and go."""
    owned = trioperator.Owned("configmaps", bodies=True, strategy=strategy, labels=labels)

    def find(name: str) -> list[str]:
        return [name]

    options: dict[str, Any] = {"owns": [owned, "gadgets"], "watches": {"secrets": find}, "condition": "Applied"}

    @on.reconcile("widgets", registry=robot.registry, **options)
    async def reconcile(name: str, spec: Any, children: Any) -> Any:
        robot.notes.add(sorted(children["configmaps"]))
        first = trioperator.Child(
            {**_named("v1", "ConfigMap", f"{name}-a"), "data": {"size": str(spec["size"])}, "immutable": True},
            ready=lambda body: "data" in body,
        )
        if strategy != "recreate":
            first.manifest.pop("immutable")
        gadgets = [_named(GADGETS.api_version, "Gadget", f"{name}-{number}") for number in range(spec["size"])]
        return [first, *(trioperator.Child(each, depends_on=[first]) for each in gadgets)]

    async with running(robot, scope):
        await robot.create(WIDGETS, manifest(WIDGETS, size=2))
        await robot.until(GADGETS, "one-1")
        child = await robot.get(CONFIGMAPS, "one-a")
        assert child["metadata"]["labels"] if labels else child["data"] == {"size": "2"}
        await robot.create(SECRETS, _named("v1", "Secret", "one"))
        await robot.patch(WIDGETS, "one", {"spec": {"size": 1}})
        await robot.until_gone(GADGETS, "one-1")
        if strategy != "on_delete":
            await robot.until(CONFIGMAPS, "one-a", lambda body: body["data"] == {"size": "1"})
        await robot.delete(CONFIGMAPS, "one-a")
        await robot.until(CONFIGMAPS, "one-a", lambda body: body["metadata"]["uid"] != child["metadata"]["uid"])
        await robot.create(CONFIGMAPS, _named("v1", "ConfigMap", "two-a"))  # somebody else's, without the labels
        await robot.create(WIDGETS, manifest(WIDGETS, "two", size=1))
        await robot.notes.until(lambda notes: len(notes) >= 4)
        await robot.delete(WIDGETS, "one", policy="Foreground" if robot.is_real else None)
        await robot.until_gone(WIDGETS, "one")


@scopes
async def test_children_of_cluster_scoped_objects(robot: Robot, scope: str) -> None:
    name = f"p{robot.mark}"

    @on.reconcile(
        "planets", owns=["configmaps", "planets"], field="spec.mark", value=robot.mark, registry=robot.registry
    )
    async def reconcile(spec: Any) -> list[Body]:
        inside = {"metadata": {"name": name, "namespace": robot.namespace}}
        moon = _named(PLANETS.api_version, "Planet", f"{name}-moon", spec={})
        return [{"apiVersion": "v1", "kind": "ConfigMap", **inside}, moon] if spec["size"] else []

    async with running(robot, scope):
        await robot.create(PLANETS, manifest(PLANETS, name, size=1, mark=robot.mark))
        await robot.until(CONFIGMAPS, name)
        await robot.until(PLANETS, f"{name}-moon")
        await robot.patch(PLANETS, name, {"spec": {"size": 0}})
        await robot.until_gone(CONFIGMAPS, name)
        await robot.until_gone(PLANETS, f"{name}-moon")
    await robot.delete(PLANETS, name)


# What handlers request themselves.


async def test_rights_that_handlers_declare_are_enough_for_their_clients(robot: Robot) -> None:
    references: list[Body] = []

    @on.create("widgets", rights=["get,list,create,patch,delete:configmaps"], registry=robot.registry)
    async def first(client: trioperator.Client, name: str) -> None:
        for _ in range(2):
            made = await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-own"}})
        references.extend(
            {key: each[key] for key in sorted(each.keys() - {"uid", "apiVersion"})}
            for each in made["metadata"]["ownerReferences"]
        )
        assert await client.list("configmaps", labels={"no": "such"}) == []
        await client.patch("widgets", name, merge={"metadata": {"labels": {"seen": "yes"}}})

    @on.create("widgets", rights=["create:events"], registry=robot.registry)
    async def second(labels: Any, client: trioperator.Client, name: str) -> None:
        robot.notes.add(dict(labels))
        await client.delete("configmaps", f"{name}-own")

    async with running(robot, "exact"):
        await robot.create(WIDGETS, manifest(WIDGETS))
        await robot.until_handled(WIDGETS, "one", size=1)
    assert robot.notes.all[-1]["seen"] == "yes"
    assert references == [{"blockOwnerDeletion": True, "controller": True, "kind": "Widget", "name": "one"}]


# What operators need besides.


async def test_operators_that_do_not_scan(robot: Robot) -> None:
    robot.settings.scanning.disabled = True

    @on.create("widgets", registry=robot.registry)
    async def create() -> None:
        robot.notes.add("created")

    async with running(robot, "exact", scanning=False):
        await robot.create(WIDGETS, manifest(WIDGETS))
        await robot.notes.until(1)


@pytest.mark.parametrize("shards", [1, 2])
@scopes
async def test_elections(robot: Robot, scope: str, shards: int) -> None:
    leadership = robot.settings.leadership
    leadership.enabled, leadership.namespace, leadership.name = True, robot.namespace, "elected"
    leadership.shards = shards
    leadership.lease_duration, leadership.renew_deadline, leadership.retry_period = 3, 2, 0.3

    @on.create("widgets", registry=robot.registry)
    async def create() -> None:
        robot.notes.add("created")

    names = ["elected"] if shards == 1 else ["elected-0", "elected-1"]
    one: dict[str, Any] = {"standalone": True, "identity": "one"}
    other: dict[str, Any] = {"standalone": True, "identity": "other"}
    async with running(robot, scope, lease=(robot.namespace, "elected"), shards=shards, options=one):
        for name in names:
            await robot.until(LEASES, name, lambda body: bool(body["spec"].get("holderIdentity")))
        async with robot.operating(namespaces=robot.patterns_of(scope), clusterwide=scope == "cluster", **other):
            await robot.create(WIDGETS, manifest(WIDGETS))
            await robot.notes.until(1)
            await trio.sleep(1)  # with shards, some move
    for name in names:  # released in order
        assert not (await robot.get(LEASES, name))["spec"].get("holderIdentity")


@pytest.mark.parametrize("scope", ["cluster", "exact"])
async def test_peering(robot: Robot, scope: str) -> None:
    definition = peering_crd(clusterwide=scope == "cluster")
    await robot.define(definition)
    plural = definition["spec"]["names"]["plural"]
    kind = Resource("kopf.dev", "v1", plural, namespaced=scope != "cluster")

    @on.create("widgets", registry=robot.registry)
    async def create() -> None:
        robot.notes.add("created")

    try:
        await robot.create(kind, peering(robot.mark, namespace=None if scope == "cluster" else robot.namespace))
        async with running(robot, scope, options={"peering_name": robot.mark}, standalone=False, peering=robot.mark):
            await robot.create(WIDGETS, manifest(WIDGETS))
            await robot.notes.until(1)
            await robot.until(kind, robot.mark, lambda body: bool(body.get("status")))
    finally:
        with contextlib.suppress(NotFoundError):
            await robot.delete(CRDS, definition["metadata"]["name"])


# Webhooks.


@scopes
async def test_webhooks_with_a_secret_for_their_ca(robot: Robot, scope: str) -> None:
    registry, settings = robot.registry, robot.settings
    settings.posting.enabled = True
    group, name = f"r{robot.mark}.example.com", f"rights-{robot.mark}.example.com"
    settings.admission.server = trioperator.WebhookServer(
        addr="127.0.0.1", host="127.0.0.1", ca_secret=f"{robot.namespace}/ca"
    )
    settings.admission.managed, settings.admission.managed_conversions = name, True
    boxes = {version: Resource(group, version, "boxes", kind="Box") for version in ("v1", "v2")}
    await robot.define(define(boxes["v1"], schema={"type": "object", "properties": {"spec": OPEN}}, older=("v2",)))

    @on.validate(group, "v1", "boxes", registry=registry)
    async def check(spec: Any) -> None:
        if spec.get("size") == 13:
            raise trioperator.AdmissionError("not this one", code=400)

    @on.mutate(group, "v1", "boxes", registry=registry)
    async def fill(patch: trioperator.Patch) -> None:
        patch.spec["filled"] = True

    @on.convert(group, "boxes", from_="v1", to="v2", registry=registry)
    @on.convert(group, "boxes", from_="v2", to="v1", registry=registry)
    async def convert(patch: trioperator.Patch, to: str) -> None:
        patch.spec["version"] = to

    @on.create(group, "v1", "boxes", registry=registry)
    async def create() -> None:
        robot.notes.add("created")

    async with running(robot, scope, managed=name, conversions=True, ca_secret=(robot.namespace, "ca")):
        await robot.create_soon(boxes["v1"], manifest(boxes["v1"]))
        await robot.notes.until(1)
        assert (await robot.get(boxes["v2"], "one"))["spec"]["version"] == "v2"
        with pytest.raises(ApiError, match="not this one"):
            await robot.create(boxes["v1"], manifest(boxes["v1"], "two", size=13))
        outside = Server(robot.connection, robot.admin, is_real=robot.is_real)
        await robot.create(NAMESPACES, _named("v1", "Namespace", outside.namespace))
        with pytest.raises(ApiError, match="not this one"):
            await outside.create(boxes["v1"], manifest(boxes["v1"], "two", size=13))
        await robot.delete(boxes["v1"], "one")
    await robot.delete(CRDS, f"boxes.{group}")


# Migrations.


async def test_migrations_of_stored_objects(robot: Robot) -> None:
    group = f"m{robot.mark}.example.com"
    old, new = (Resource(group, version, "boxes", kind="Box") for version in ("v1", "v2"))
    await robot.define(define(old, older=("v2",)))
    await robot.create(old, manifest(old))
    versions = define(new, older=("v1",))["spec"]["versions"]
    await robot.patch(CRDS, f"boxes.{group}", {"spec": {"versions": versions}})
    robot.settings.crds.migrate = True

    @crds.kind(f"{group}/v2", registry=robot.registry)
    class Box:
        pass

    @on.event(Box, registry=robot.registry)
    async def see() -> None: ...

    async with running(robot, "exact", migrate=True):
        with trio.fail_after(60):
            while True:
                if (await robot.get(CRDS, f"boxes.{group}"))["status"]["storedVersions"] == ["v2"]:
                    break
                await trio.sleep(0.1)
    await robot.delete(CRDS, f"boxes.{group}")
