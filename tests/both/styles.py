"""One operator in four styles: event handlers with the client, a reconcile handler, and two typed client libraries.

An app has a Deployment and a ConfigMap, and the number of replicas in its status.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import pytest

import trioperator
from tests.both.kinds import WIDGETS
from trioperator import on

#: Declares the handlers of an operator.
Declare = Callable[[trioperator.OperatorRegistry], None]

NAME: Final = "app"
MARK: Final = {"style": "any"}
_KIND: Final = f"{WIDGETS.plural}.{WIDGETS.group}"
_CHILDREN: Final = ("deployments.apps", "configmaps")
_IMAGE: Final = "nginx:1"


def make_children(name: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": _IMAGE}]}}
    metadata = {"name": name, "labels": MARK}
    deployment = {"replicas": spec["replicas"], "selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**metadata}, "spec": deployment},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata}, "data": {"level": "info"}},
    ]


def declare_events(registry: trioperator.OperatorRegistry) -> None:
    """Declare handlers of what happens to the app and to its children."""

    @on.create(_KIND, registry=registry)
    @on.resume(_KIND, registry=registry)
    @on.update(_KIND, registry=registry)
    async def apply(
        name: str, spec: trioperator.Spec, patch: trioperator.Patch, client: trioperator.Client, **_: object
    ) -> None:
        for child in make_children(name, spec):
            await client.apply(child, force=True)
        patch.status["replicas"] = spec["replicas"]

    async def repair(event: trioperator.RawEvent, client: trioperator.Client, **_: object) -> None:
        parent = await find_parent(event["object"]["metadata"], client)
        for child in () if parent is None else make_children(parent["metadata"]["name"], parent["spec"]):
            if differs(event, child):
                await client.apply(child, owner=parent, force=True)

    for kind in _CHILDREN:
        on.event(kind, labels=MARK, registry=registry)(repair)


def differs(event: trioperator.RawEvent, child: Mapping[str, Any]) -> bool:
    """Return whether it is this child that the event is about, and it is not as it should be."""
    if event["object"]["kind"] != child["kind"]:
        return False
    return event["type"] == "DELETED" or not contains(event["object"], child)


def contains(found: Any, wanted: Any) -> bool:
    """Return whether all that is wanted is there."""
    if isinstance(wanted, Mapping):
        return all(contains(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)


async def find_parent(meta: Mapping[str, Any], client: trioperator.Client) -> dict[str, Any] | None:
    """Return the app that has a child, unless it is gone."""
    (owner,) = meta.get("ownerReferences") or [{"name": "", "uid": ""}]
    try:
        parent = await client.get(_KIND, owner["name"])
    except trioperator.NotFoundError:
        return None
    return parent if parent["metadata"]["uid"] == owner["uid"] else None


def declare_reconcile(registry: trioperator.OperatorRegistry) -> None:
    """Declare one function that returns what shall be there."""

    @on.reconcile(_KIND, owns=_CHILDREN, registry=registry)
    async def reconcile(name: str, spec: trioperator.Spec, patch: trioperator.Patch) -> list[dict[str, Any]]:
        patch.status["replicas"] = spec["replicas"]
        return make_children(name, spec)


def declare_lightkube(registry: trioperator.OperatorRegistry) -> None:
    """Declare handlers with the typed objects and the client of lightkube, with the operator's connection."""
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.models import apps_v1, core_v1, meta_v1
    from lightkube.resources.apps_v1 import Deployment
    from lightkube.resources.core_v1 import ConfigMap

    app = create_namespaced_resource(WIDGETS.group, WIDGETS.version, WIDGETS.kind, WIDGETS.plural)

    def make_typed(parent: Mapping[str, Any]) -> list[Any]:
        name = parent["metadata"]["name"]
        template = core_v1.PodTemplateSpec(
            metadata=meta_v1.ObjectMeta(labels={"app": name}),
            spec=core_v1.PodSpec(containers=[core_v1.Container(name="web", image=_IMAGE)]),
        )
        selector = meta_v1.LabelSelector(matchLabels={"app": name})
        spec = apps_v1.DeploymentSpec(replicas=parent["spec"]["replicas"], selector=selector, template=template)
        children = [
            Deployment(metadata=meta_v1.ObjectMeta(name=name, labels={**MARK}), spec=spec),
            ConfigMap(metadata=meta_v1.ObjectMeta(name=name, labels={**MARK}), data={"level": "info"}),
        ]
        trioperator.adopt(children, parent)
        return children

    @on.startup(registry=registry)
    async def log_in(memo: trioperator.Memo, client: trioperator.Client, **_: object) -> None:
        memo.api = (await client.connection()).for_lightkube()

    @on.cleanup(registry=registry)
    async def log_out(memo: trioperator.Memo, **_: object) -> None:
        await memo.api.close()

    @on.create(_KIND, registry=registry)
    @on.resume(_KIND, registry=registry)
    @on.update(_KIND, registry=registry)
    async def apply(body: trioperator.Body, patch: trioperator.Patch, memo: trioperator.Memo, **_: object) -> None:
        for child in make_typed(body):
            await memo.api.apply(child, field_manager="trioperator", force=True)
        patch.status["replicas"] = body["spec"]["replicas"]

    async def repair(
        event: trioperator.RawEvent, meta: trioperator.Meta, namespace: str, memo: trioperator.Memo, **_: object
    ) -> None:
        (owner,) = meta["ownerReferences"]
        found = [each async for each in memo.api.list(app, namespace=namespace)]
        for parent in (each for each in found if each.metadata.uid == owner["uid"]):
            for child in make_typed(parent.to_dict()):
                if differs(event, {"kind": type(child).__name__, **child.to_dict()}):
                    await memo.api.apply(child, field_manager="trioperator", force=True)

    for kind in _CHILDREN:
        on.event(kind, labels=MARK, registry=registry)(repair)


def declare_kr8s(registry: trioperator.OperatorRegistry) -> None:
    """Declare handlers with the objects of kr8s, whose client runs on Trio, and connects by the network only."""
    from kr8s import ServerError
    from kr8s.asyncio.objects import ConfigMap, Deployment, new_class

    app = new_class(WIDGETS.kind, f"{WIDGETS.group}/{WIDGETS.version}", plural=WIDGETS.plural)

    @on.startup(registry=registry)
    async def log_in(memo: trioperator.Memo, client: trioperator.Client, **_: object) -> None:
        memo.api = await (await client.connection()).for_kr8s()

    @on.cleanup(registry=registry)
    async def log_out(memo: trioperator.Memo, **_: object) -> None:
        await memo.api._session.aclose()  # it has no method for that

    def make_typed(parent: Mapping[str, Any], api: Any) -> list[Any]:
        manifests = make_children(parent["metadata"]["name"], parent["spec"])
        children = [kind(each, api=api) for kind, each in zip((Deployment, ConfigMap), manifests, strict=True)]
        trioperator.adopt(children, parent)
        return children

    async def put(child: Any) -> None:
        """Create a child, or make it as it should be: there is no server-side apply."""
        manifest = child.raw.to_dict()
        try:
            await child.create()
        except ServerError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            await child.patch(manifest)

    @on.create(_KIND, registry=registry)
    @on.resume(_KIND, registry=registry)
    @on.update(_KIND, registry=registry)
    async def apply(body: trioperator.Body, patch: trioperator.Patch, memo: trioperator.Memo, **_: object) -> None:
        for child in make_typed(body, memo.api):
            await put(child)
        patch.status["replicas"] = body["spec"]["replicas"]

    async def repair(
        event: trioperator.RawEvent, meta: trioperator.Meta, namespace: str, memo: trioperator.Memo, **_: object
    ) -> None:
        (owner,) = meta["ownerReferences"]
        found = [each async for each in app.list(api=memo.api, namespace=namespace)]
        for parent in (each for each in found if each.metadata.uid == owner["uid"]):
            for child in make_typed(parent.to_dict(), memo.api):
                if differs(event, child.to_dict()):
                    await put(child)

    for kind in _CHILDREN:
        on.event(kind, labels=MARK, registry=registry)(repair)


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None, reason=f"{library} is not installed (`nox -s clients` has it)"
    )


STYLES: Final = [
    pytest.param(declare_events, id="events"),
    pytest.param(declare_reconcile, id="reconcile"),
    pytest.param(declare_lightkube, id="lightkube", marks=needs("lightkube")),
]
#: Virtual time is for clients that take a transport. kr8s warns of servers that are newer than it is.
STYLES_ON_NETWORKS: Final = [
    *STYLES,
    pytest.param(
        declare_kr8s,
        id="kr8s",
        marks=[needs("kr8s"), pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")],
    ),
]
