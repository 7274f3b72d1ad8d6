"""Programs that use third-party client libraries, and print what they observed as JSON.

::

    python -m tests.apiserver.client_programs kubernetes|kr8s KUBECONFIG
"""

from __future__ import annotations

import json
import sys
from typing import Any


def shape(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": {"name": name}, "spec": spec}


def use_kubernetes(kubeconfig: str) -> list[Any]:
    """Use the official client."""
    from kubernetes import client, config, watch
    from kubernetes.client.exceptions import ApiException

    api = config.new_client_from_config(kubeconfig)
    core, apps, custom = client.CoreV1Api(api), client.AppsV1Api(api), client.CustomObjectsApi(api)
    seen: list[Any] = []

    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(name="p", labels={"a": "b"}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="busybox")]),
    )
    made = core.create_namespaced_pod("default", pod)
    listed = core.list_namespaced_pod("default", label_selector="a=b")
    seen.append([item.metadata.name for item in listed.items])
    core.patch_namespaced_pod("p", "default", {"metadata": {"labels": {"c": "d"}}})
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_pod, "default", resource_version=made.metadata.resource_version, timeout_seconds=10
    ):
        seen.append((event["type"], event["object"].metadata.labels))
        if event["type"] == "DELETED":
            stream.stop()

    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    apps.create_namespaced_deployment("default", {"metadata": {"name": "d"}, "spec": spec})
    apps.patch_namespaced_deployment_scale("d", "default", {"spec": {"replicas": 4}})
    seen.append(apps.read_namespaced_deployment("d", "default").spec.replicas)

    kind = ("conformance.dev", "v1", "default", "shapes")
    custom.create_namespaced_custom_object(*kind, shape("s", size=1))
    custom.patch_namespaced_custom_object(*kind, "s", {"spec": {"size": 2}})
    custom.patch_namespaced_custom_object_status(*kind, "s", {"status": {"ready": True}})
    found = custom.get_namespaced_custom_object(*kind, "s")
    seen.append((found["spec"], found["status"]))
    try:
        custom.get_namespaced_custom_object(*kind, "none")
    except ApiException as error:
        seen.append((error.status, error.reason))
    return seen


def use_kr8s(kubeconfig: str) -> list[Any]:
    """Use kr8s."""
    import kr8s
    from kr8s.objects import Pod, new_class

    api = kr8s.api(kubeconfig=kubeconfig)
    Shape = new_class(kind="Shape", version="conformance.dev/v1", namespaced=True)  # noqa: N806 -- it is a class
    seen: list[Any] = []
    pod = Pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}, api=api)
    pod.create()
    seen.append([each.name for each in api.get("pods", namespace="default")])
    pod.label({"a": "b"})
    pod.refresh()
    seen.append(dict(pod.labels))
    one = Shape(shape("s", size=1), api=api, namespace="default")
    one.create()
    one.patch({"spec": {"size": 2}})
    for event, obj in api.watch("shapes.conformance.dev", namespace="default"):
        seen.append((event, obj.raw["spec"]["size"]))
        break
    one.delete()
    pod.delete()
    seen.append((one.exists(), pod.exists()))
    return seen


if __name__ == "__main__":
    program = {"kubernetes": use_kubernetes, "kr8s": use_kr8s}[sys.argv[1]]
    print(json.dumps(program(sys.argv[2])))  # noqa: T201
