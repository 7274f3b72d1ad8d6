"""Leftovers of an operator in a cluster, as steps that remove them, in the order in which nothing blocks.

First the operator itself, where it is to be stopped; then its webhooks, without which objects can be written again;
then conversions, without which they can be read; then the finalizers on them; then Leases. Objects, their children and
CRDs are the users', and stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trioperator._handling import guard
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._handling.handlers.handler import Handler, ResourceHandler
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._model.resource import Resource, select_resources
from trioperator._tooling.releasing import Place, Releaser, Traces
from trioperator.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from trioperator.client import Client

Report = Callable[[str], None]

_CONFIGURATIONS: Final = (
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
)
_CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_LEASES: Final = "leases.coordination.k8s.io"
_DEPLOYMENTS: Final = "deployments.apps"
# Seconds in which the pods of a Deployment end, after their grace period of 30 s.
_STOPPING: Final = 60.0


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, by what is known without running it.

    *managed* is the name of its webhook configurations, *lease* the namespace and the name of its Lease, or the prefix
    of the names of its shards' Leases; *deployment* the same of its Deployment, if that is to be stopped. Its objects
    are in *namespaces*, by default in all.
    """

    handlers: tuple[Handler, ...]
    deployment: tuple[str, str] | None = None
    managed: str | None = None
    lease: tuple[str, str] | None = None
    namespaces: tuple[str, ...] = ()
    traces: Traces = Traces()


class Run(msgspec.Struct, frozen=True):
    """A run of the steps: *report* is called with a line for each object; a *dry_run* changes nothing."""

    report: Report
    dry_run: bool = False

    async def do(self, name: str, act: Callable[[], Awaitable[object]]) -> bool:
        """Do something to an object, and report it; return whether it has succeeded. Other errors are raised."""
        try:
            if not self.dry_run:
                await act()
        except ApiError as error:
            self.report(f"{name}: failed: {error}")
            return False
        self.report(f"{name}: {'to be done' if self.dry_run else 'done'}")
        return True


class Step(msgspec.Struct, frozen=True):
    """One thing to remove: *run* reports each object, and returns whether all of them are done."""

    title: str
    run: Callable[[Run], Awaitable[bool]]


async def plan_steps(client: Client, installation: Installation, resources: Collection[Resource]) -> list[Step]:
    """Return the steps that remove what an operator has left: those for which there is something in the cluster.

    *resources* are the kinds of the cluster. Raises ApiError or ConnectionLostError if the cluster cannot be asked.
    """
    handlers = installation.handlers
    steps: list[Step] = []
    if installation.deployment is not None:
        place = "/".join(installation.deployment)
        steps.append(Step(f"Stop the deployment {place}", functools.partial(_stop, client, *installation.deployment)))
    if installation.managed is not None:
        steps += await _plan_webhooks(client, installation.managed)
    for kind in _find_kinds([h for h in handlers if isinstance(h, ConversionHandler)], resources):
        steps += await _plan_conversion(client, f"{kind.plural}.{kind.group}")
    for kind in _find_kinds([h for h in handlers if _may_have_finalizer(h)], resources):
        run = functools.partial(_release, client, kind, installation)
        steps.append(Step(f"Remove the finalizers of all {kind}", run))
    if installation.lease is not None:
        steps += await _plan_leases(client, *installation.lease)
    return steps


def needs_managed(installation: Installation) -> bool:
    """Return whether there may be webhook configurations whose name is not known."""
    handlers = installation.handlers
    return installation.managed is None and any(isinstance(handler, AdmissionHandler) for handler in handlers)


def _may_have_finalizer(handler: Handler) -> bool:
    """Return whether objects of the handler may have a finalizer: an earlier version may have had other handlers."""
    return isinstance(handler, ResourceHandler) and KindHandlers.of([handler]).needs_state


def _find_kinds(handlers: Iterable[Handler], resources: Collection[Resource]) -> list[Resource]:
    """Return the kinds of handlers whose objects can be changed, each in one version."""
    found: dict[tuple[str, str], Resource] = {}
    for handler in handlers:
        assert isinstance(handler, ResourceHandler)
        selection = guard.call("The selector {}", handler.selector, select_resources, handler.selector, resources)
        for kind in selection.resources:
            if "patch" in kind.verbs:
                found.setdefault((kind.group, kind.plural), kind)
    return [found[key] for key in sorted(found)]


async def _release(client: Client, kind: Resource, installation: Installation, run: Run) -> bool:
    is_limited = bool(installation.namespaces) and kind.namespaced is not False
    places = [Place(name) for name in installation.namespaces] if is_limited else [Place(all_namespaces=True)]
    releaser = Releaser(client, installation.traces, run.report, run.dry_run)
    done = []
    for place in places:
        summary = await releaser.release(kind, place)
        if summary.again:
            run.report(f"{summary.again} objects have a finalizer again: an operator that still runs has added it.")
        done.append(not (summary.failed or summary.again))
    return all(done)


async def _plan_webhooks(client: Client, name: str) -> list[Step]:
    steps = []
    for kind in _CONFIGURATIONS:
        if await _find(client, kind, name) is not None:
            title = f"Delete the {kind.partition('.')[0].removesuffix('s')} {name}"
            steps.append(Step(title, functools.partial(_delete, client, kind, name, None)))
    return steps


async def _plan_conversion(client: Client, name: str) -> list[Step]:
    found = await _find(client, _CRDS, name)
    if found is None or (found["spec"].get("conversion") or {}).get("strategy") != "Webhook":
        return []
    title = f"Convert {name} without a webhook, which no longer responds: other versions are as they are stored"
    return [Step(title, functools.partial(_end_conversion, client, name))]


async def _end_conversion(client: Client, name: str, run: Run) -> bool:
    patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    return await run.do(name, functools.partial(client.patch, _CRDS, name, merge=patch))


async def _plan_leases(client: Client, namespace: str, name: str) -> list[Step]:
    own = re.compile(rf"{re.escape(name)}(-\d+|-members)?")
    found = await client.list(_LEASES, namespace=namespace)
    names = sorted(lease["metadata"]["name"] for lease in found if own.fullmatch(lease["metadata"]["name"]))
    return [
        Step(f"Delete the lease {namespace}/{each}", functools.partial(_delete, client, _LEASES, each, namespace))
        for each in names
    ]


async def _stop(client: Client, namespace: str, name: str, run: Run) -> bool:
    """Scale a Deployment to zero, and wait until its pods are gone: until then, they may handle objects."""

    async def stop() -> None:
        scale = await client.scale(_DEPLOYMENTS, name, replicas=0, namespace=namespace)
        for pod in await client.list("pods", namespace=namespace, labels=scale["status"]["selector"]):
            await client.wait_deleted(pod, timeout=_STOPPING)

    try:
        return await run.do(name, stop)
    except TimeoutError:
        run.report(f"{name}: its pods are still there after {_STOPPING:g} s.")
        return False


async def _find(client: Client, kind: str, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(kind, name)
    except NotFoundError:
        return None


async def _delete(client: Client, kind: str, name: str, namespace: str | None, run: Run) -> bool:
    delete = functools.partial(client.delete, kind, name, namespace=namespace, missing_ok=True)
    return await run.do(name, delete)
