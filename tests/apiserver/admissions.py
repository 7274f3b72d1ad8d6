"""WebhookCase for cases of admission and conversion: a server under test, and webhooks that it can reach."""

from __future__ import annotations

import contextlib
import copy
import uuid
from collections.abc import AsyncIterator
from typing import Any

import trio

from tests.apiserver.conftest import Answer, Target
from tests.apiserver.hooks import Hooks, configuration, deny, webhook

Object = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PROBE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}


class WebhookCase:
    """Webhooks, and a server under test that calls them for the namespace of the case."""

    def __init__(self, target: Target, hooks: Hooks) -> None:
        self.target = target
        self.hooks = hooks
        self.unique = f"x{uuid.uuid4().hex[:8]}"
        self._configured: list[str] = []
        hooks.handlers["/probe"] = lambda review: deny(review, status={"message": "it is effective"})

    def webhook(self, path: str, **more: Any) -> Object:
        """Return a webhook, by default for ConfigMaps of the case's namespace."""
        selectors = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.target.namespace}},
            "objectSelector": {"matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]},
        }
        return webhook(self.hooks, path, **{**selectors, **more})

    def rule(self, *resources: str, group: str = "", versions: tuple[str, ...] = ("*",), **more: Any) -> Object:
        """Return a rule for all operations on the resources."""
        return {
            "apiGroups": [group],
            "apiVersions": list(versions),
            "resources": list(resources),
            "operations": ["*"],
            **more,
        }

    async def configure(self, kind: str, *webhooks: Object, name: str = "") -> Object:
        """Create a configuration, and wait until it is effective."""
        name = f"{self.unique}-{name or kind.lower()}"
        selector = {"matchLabels": {"probe": name}}
        probe = self.webhook("/probe", name="probe.conformance.dev", objectSelector=selector, rules=[PROBE])
        path = f"{REGISTRATION}/{kind.lower()}webhookconfigurations"
        answer = await self.target.request("POST", path, configuration(kind, name, *webhooks, probe))
        assert answer.code == 201, answer.content
        self._configured.append(f"{path}/{name}")

        async def ask() -> Answer:
            return await self.target.request(
                "POST",
                self.target.path("configmaps"),
                {"metadata": {"name": "probe", "labels": {"probe": name}}},
                dryRun="All",
            )

        await self.target.eventually(ask, lambda answer: "it is effective" in answer.message)
        self.hooks.asked.clear()
        content: Object = answer.content
        return content

    async def clear(self) -> None:
        """Delete the configurations."""
        for path in self._configured:
            await self.target.delete(path)

    def asked(self, path: str) -> list[Object]:
        """Return the requests of the reviews at the path, without fields that differ between servers."""
        return [essence(request) for request in self.hooks.requests(path)]

    def operations(self, path: str) -> list[str]:
        """Return the operations that the webhook reviewed."""
        return [request["operation"] for request in self.hooks.requests(path)]


def essence(request: Object) -> Object:
    """Return the request of a review without its uid, its user, and managed fields."""
    result = copy.deepcopy({key: value for key, value in request.items() if key not in {"uid", "userInfo"}})
    for field in ("object", "oldObject"):
        if result.get(field):
            result[field].get("metadata", {}).pop("managedFields", None)
    return result


@contextlib.asynccontextmanager
async def open_bench(target: Target, hooks: Hooks, bench: WebhookCase | None = None) -> AsyncIterator[WebhookCase]:
    """Yield a new bench (or this one), and delete its configurations afterwards."""
    bench = bench or WebhookCase(target, hooks)
    try:
        yield bench
    finally:
        if target.is_real:
            with trio.move_on_after(10, shield=True):
                await bench.clear()
