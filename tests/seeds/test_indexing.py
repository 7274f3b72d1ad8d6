"""Chapter In-memory indexing: indices with timers, probes and each other."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import example, operating, rest
from trioperator.apiserver import Cluster


def pod(name: str, namespace: str = "default", *containers: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": each, "image": "busybox"} for each in containers or ("main",)]},
    }


async def test_a_timer_looks_up_values_in_an_index(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @kopf.index("pods")
    async def by_label(labels: kopf.Labels, name: str, **_: Any) -> Any:
        return {(label, value): name for label, value in labels.items()}  # noqa: C420 -- as it is shown

    @kopf.timer("kex", interval=5)
    async def tick(by_label: kopf.Index[Any, str], **_: Any) -> None:
        seen.append(sorted(by_label.get(("label2", "value2b"), [])))

    await kex.create(pod("pod1", label1="value1a", label2="value2b"))
    await kex.create(pod("pod2", label1="value1b", label2="value2a"))
    async with operating(kex):
        await kex.create(example())
        await rest(4)
        await kex.create(pod("pod3", label2="value2b"))
        await rest(5)
        await kex.delete("pods", "pod1")
        await rest(5)
    assert seen[0] == ["pod1"]
    assert ["pod1", "pod3"] in seen
    assert seen[-1] == ["pod3"]


async def test_resources_are_enumerated_in_both_ways(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @kopf.index("pods")
    async def pods_list(namespace: str, name: str, **_: Any) -> Any:
        return namespace, name

    @kopf.index("pods")
    async def pods_dict(namespace: str, name: str, **_: Any) -> Any:
        return {(namespace, name): None}

    @kopf.timer("kopfexamples", interval=5)
    async def tick(
        pods_list: kopf.Index[None, tuple[str, str]],
        pods_dict: kopf.Index[tuple[str, str], None],
        spec: kopf.Spec,
        namespace: str,
        **_: Any,
    ) -> None:
        monitored_namespace = spec.get("monitoredNamespace", namespace)
        seen.append(sorted(name for ns, name in pods_list.get(None, []) if ns == monitored_namespace))
        seen.append(sorted(name for ns, name in pods_dict if ns == monitored_namespace))

    await kex.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "namespace2"}})
    for name, namespace in (("pod1a", "default"), ("pod1b", "default"), ("pod2a", "namespace2")):
        await kex.create(pod(name, namespace))
    async with operating(kex):
        await kex.create(example(monitoredNamespace="namespace2"))
        await kex.create(example("kex-2"))
        await rest(2)
    assert sorted(map(tuple, seen)) == [("pod1a", "pod1b")] * 2 + [("pod2a",)] * 2


async def test_a_whole_object_is_mirrored(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[str] = []

    @kopf.index("deployments")
    async def whole_deployments(name: str, namespace: str, body: kopf.Body, **_: Any) -> Any:
        return {(namespace, name): body}

    @kopf.timer("kopfexamples", interval=5)
    async def tick(whole_deployments: kopf.Index[Any, kopf.Body], **_: Any) -> None:
        deployment, *_ = whole_deployments[("kube-system", "coredns")]  # type: ignore[assignment]
        actual = deployment.status.get("replicas")
        desired = deployment.spec.get("replicas")
        seen.append(f"{deployment.meta.name}: {actual}/{desired}")

    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "dns", "image": "dns"}]}}
    await kex.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "coredns", "namespace": "kube-system"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
    )
    await kex.patch("deployments", "coredns", {"status": {"replicas": 1}}, "kube-system", subresource="status")
    async with operating(kex):
        await kex.create(example())
        await rest(2)
    assert seen == ["coredns: 1/2"]


async def test_an_index_of_an_index_finds_the_containers_of_a_namespace(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    seen: list[set[str]] = []

    @kopf.index("pods")
    async def primary(namespace: str, name: str, spec: kopf.Spec, **_: Any) -> Any:
        container_names = {container["name"] for container in spec["containers"]}
        return {(namespace, name): container_names}

    @kopf.index("pods")
    async def secondary(namespace: str, name: str, **_: Any) -> Any:
        return {namespace: name}

    @kopf.timer("kopfexamples", interval=5)
    async def tick(
        primary: kopf.Index[Any, set[str]], secondary: kopf.Index[str, str], spec: kopf.Spec, **_: Any
    ) -> None:
        namespace_containers: set[str] = set()
        monitored_namespace = spec.get("monitoredNamespace", "default")
        for pod_name in secondary.get(monitored_namespace, []):
            reconstructed_key = (monitored_namespace, pod_name)
            pod_containers, *_ = primary[reconstructed_key]  # type: ignore[assignment]
            namespace_containers |= pod_containers
        seen.append(namespace_containers)

    await kex.create(pod("pod1a", "default", "main"))
    await kex.create(pod("pod1b", "default", "main", "sidecar"))
    await kex.create(pod("other", "kube-system", "other"))
    async with operating(kex):
        await kex.create(example())
        await rest(2)
    assert seen == [{"main", "sidecar"}]


async def test_an_index_that_returns_nothing_stays_empty(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @kopf.index("pods")
    async def empty_index(**_: Any) -> None:
        pass

    @kopf.index("pods")
    async def index_of_nones(**_: Any) -> Any:
        return {"key": None}

    @kopf.on.event("kopfexamples")
    async def look(empty_index: Any, index_of_nones: Any, **_: Any) -> None:
        seen.append((dict(empty_index), [list(store) for store in index_of_nones.values()]))

    for name in ("pod1", "pod2"):
        await kex.create(pod(name))
    await kex.create(example())
    async with operating(kex):
        await rest(2)
    assert seen == [({}, [[None, None]])]
