"""Admission: webhooks may change an object before it is stored, and may refuse a write.

First the mutating webhooks are asked, one after the other in the order of their configurations' names, then those again
that want to be if somebody has changed the object after them. When the object is complete and valid, the validating
webhooks are asked, all at once. Where no webhook is concerned, nothing waits.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator.errors import ApiError

from ..bodies.decoding import WriteOptions, decode_object
from ..builtin.validity.webhook_configurations import CONFIGURATIONS, MUTATING, VALIDATING
from ..custom.cel import Conditions
from ..model.errors import bad_request, forbidden, internal_error
from ..model.kinds import Kind
from ..store.state import State
from ..store.storage import Change, Table
from .admission_review import InvalidReviewError, Verdict, make_review, read_review, rejection, review_version
from .client import WebhookCallError, WebhookClient
from .conversion import Converter
from .json_patch import apply_operations
from .matching import AdmissionAttributes, Webhook, select, webhooks_of

__all__ = ["AdmissionWebhooks"]

_log: Final = logging.getLogger(__name__)

Object = dict[str, Any]


class _FailedError(Exception):
    """Say that a webhook could not be asked, or has not answered as it must."""


class AdmissionWebhooks:
    """The webhooks of one cluster, as its configurations say at the moment."""

    def __init__(self, state: State, webhook_client: WebhookClient, converter: Converter) -> None:
        self._state = state
        self._webhook_client = webhook_client
        self._converter = converter
        self._conditions = Conditions()
        self._known: dict[tuple[str, str], list[Webhook]] = {}
        state.store.on_change.append(self._observe)

    def _observe(self, table: Table, change: Change) -> None:
        if table.resource in CONFIGURATIONS:
            self._known.pop(table.resource, None)

    def _webhooks(self, resource: tuple[str, str]) -> list[Webhook]:
        """Return the webhooks of the configurations of that kind, in the order of their names."""
        known = self._known.get(resource)
        if known is None:
            table = self._state.store.table(resource)
            known = [hook for key in table.keys() for hook in webhooks_of(table.objects[key].obj)]  # noqa: SIM118
            self._known[resource] = known
        return known

    # -- phases ---------------------------------------------------------------------------------------------------

    def concern(self, attributes: AdmissionAttributes) -> bool:
        """Return whether there is a webhook to be asked about the attempt."""
        return not attributes.is_exempt and any(
            self._selected_kind(hook, attributes) is not None
            for resource in (MUTATING, VALIDATING)
            for hook in self._webhooks(resource)
        )

    async def mutate(self, attributes: AdmissionAttributes) -> Object | None:
        """Return the object as the mutating webhooks want it, or raise their refusal."""
        if attributes.is_exempt or not self._webhooks(MUTATING):
            return attributes.new
        hooks = self._webhooks(MUTATING)
        asked: set[str] = set()  # and to be asked again if somebody changes the object after them
        again: set[str] = set()
        for turn in (0, 1):
            for at, hook in enumerate(hooks):
                if turn and hook.id not in again:
                    continue
                left = await self._mutate_by(hook, attributes, place=f"round_{turn}_index_{at}")
                if left is None:
                    continue
                if left.new is not attributes.new:
                    again |= asked
                    asked.clear()
                if hook.is_reinvoked:
                    asked.add(hook.id)
                attributes = left
            if not again:
                break
        return attributes.new

    async def _mutate_by(
        self, hook: Webhook, attributes: AdmissionAttributes, *, place: str
    ) -> AdmissionAttributes | None:
        """Return the attempt as the webhook has left it; None if the webhook was not concerned."""
        kind = await self._select(hook, attributes)
        if kind is None:
            return None
        seen = await self._in_version(attributes, kind)
        try:
            verdict = await self._ask(hook, attributes, seen, kind, mutating=True)
        except _FailedError as error:
            self._survive(
                hook, attributes.options, error, note=f"failed-open.mutation.webhook.admission.k8s.io/{place}"
            )
            return attributes
        if not verdict.operations:
            return attributes
        if seen.new is None:
            text = f'admission webhook "{hook.name}" attempted to modify the object'
            raise internal_error(f"{text}, which is not supported for this operation")
        new = _reshaped(kind, apply_operations(seen.new, verdict.operations), attributes)
        if kind.custom is not None and new == _plain(seen.new):
            return attributes  # the real server takes any patch of a built-in kind for a change
        if kind is not attributes.kind:
            new = await self._converter.convert(new, attributes.kind)
        return dataclasses.replace(attributes, new=new)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Ask all validating webhooks at once; raise the first refusal after all have answered."""
        if attributes.is_exempt or not self._webhooks(VALIDATING):
            return
        selected = []
        for at, hook in enumerate(self._webhooks(VALIDATING)):
            kind = await self._select(hook, attributes)
            if kind is not None:
                selected.append((at, hook, kind, await self._in_version(attributes, kind)))
        refusals: list[ApiError] = []

        async def ask(at: int, hook: Webhook, kind: Kind, seen: AdmissionAttributes) -> None:
            try:
                await self._ask(hook, attributes, seen, kind, mutating=False)
            except _FailedError as error:
                note = f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{at}"
                try:
                    self._survive(hook, attributes.options, error, note=note)
                except ApiError as refusal:
                    refusals.append(refusal)
            except ApiError as refusal:
                refusals.append(refusal)

        if selected:
            async with trio.open_nursery() as nursery:
                for item in selected:
                    nursery.start_soon(ask, *item, name=f"ask {item[1].name}")
        if refusals:
            raise refusals[0]

    # -- who is asked ---------------------------------------------------------------------------------------------

    async def _select(self, hook: Webhook, attributes: AdmissionAttributes) -> Kind | None:
        """Return the version in which the webhook is to be asked; None if it is not concerned."""
        kind = self._selected_kind(hook, attributes)
        if kind is None or not hook.conditions:
            return kind
        seen = await self._in_version(attributes, kind)
        request = _plain(make_review("v1", "", seen, kind)["request"])
        try:
            is_met = self._conditions.are_met(hook.conditions, request, ignores_failures=hook.ignores_failures)
        except ValueError as error:
            raise forbidden(attributes.kind, attributes.name, str(error)) from None
        return kind if is_met else None

    def _selected_kind(self, hook: Webhook, attributes: AdmissionAttributes) -> Kind | None:
        namespaces = self._state.store.table(("", "namespaces")).objects
        found = namespaces.get(attributes.namespace)
        return select(
            hook,
            attributes,
            equivalents=self._equivalents(attributes),
            namespace=found.obj if found is not None else None,
        )

    def _equivalents(self, attributes: AdmissionAttributes) -> Iterator[Kind]:
        """Return the other versions of the attempt's kind."""
        for kind in self._state.catalog:
            if kind.resource == attributes.kind.resource and kind is not attributes.kind:
                yield kind

    async def _in_version(self, attributes: AdmissionAttributes, kind: Kind) -> AdmissionAttributes:
        if kind is attributes.kind or attributes.subresource == "scale":
            return attributes
        new = None if attributes.new is None else await self._converter.convert(attributes.new, kind)
        old = None if attributes.old is None else await self._converter.convert(attributes.old, kind)
        return dataclasses.replace(attributes, new=new, old=old)

    # -- asking ---------------------------------------------------------------------------------------------------

    async def _ask(
        self, hook: Webhook, attributes: AdmissionAttributes, seen: AdmissionAttributes, kind: Kind, *, mutating: bool
    ) -> Verdict:
        """Return the webhook's verdict, or raise its refusal; raise _FailedError if there is none."""
        options = attributes.options
        if options.dry_run and not hook.allows_dry_run:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        version = review_version(hook)
        if version is None:
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise _FailedError(f"could not create admission objects: {known}")
        uid = self._state.uid()
        content = msgspec.json.encode(make_review(version, uid, seen, kind))
        try:
            answer = await self._webhook_client.post(
                hook.client, content, timeout=hook.timeout, query=f"?timeout={hook.timeout}s"
            )
            verdict = read_review(version, uid, answer, mutating=mutating)
        except (InvalidReviewError, WebhookCallError) as error:
            raise _FailedError(str(error)) from error
        options.annotations.update({f"{hook.name}/{key}": text for key, text in verdict.annotations.items()})
        options.warnings.extend(verdict.warnings)
        if not verdict.allowed:
            raise rejection(hook, verdict.status)
        return verdict

    def _survive(self, hook: Webhook, options: WriteOptions, error: Exception, *, note: str) -> None:
        """Go on without the webhook's verdict, or refuse the write, as the failure policy says."""
        text = f'failed calling webhook "{hook.name}": {error}'
        if not hook.ignores_failures:
            raise internal_error(text)
        _log.warning("Going on, as the failure policy says: %s", text)
        options.annotations[note] = hook.name


def _plain(obj: Mapping[str, Any]) -> Any:
    """Return the content as webhooks see it: nothing in it is encoded already."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def _reshaped(kind: Kind, new: Any, attributes: AdmissionAttributes) -> Object:
    """Return the object that a webhook has patched with its defaults; refuse what is no such object."""
    if attributes.subresource == "scale":
        return dict(new)
    try:
        return decode_object(kind, new, WriteOptions(field_validation="Ignore"), patched=True)
    except ApiError as error:
        raise internal_error(error.message) from None
