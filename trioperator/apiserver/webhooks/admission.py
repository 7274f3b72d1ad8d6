"""Admission webhooks: they can modify objects before they are stored, and deny writes.

The mutating webhooks are called first, one after the other in the order of their configurations' names; some are
reinvoked if others change the object after them. Once the object is complete and valid, the validating webhooks are
called concurrently. Without a matching webhook nothing waits.
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
from ..bodies.patching import apply_operations
from ..builtin.validity.webhook_configurations import CONFIGURATIONS, MUTATING, VALIDATING
from ..custom.cel import Conditions
from ..model.errors import bad_request, forbidden, internal_error
from ..model.kinds import Kind
from ..store.state import State
from ..store.storage import Change, Table
from .admission_review import InvalidReviewError, Verdict, make_review, read_review, rejection, review_version
from .client import WebhookCallError, WebhookClient
from .conversion import Converter
from .matching import FOREIGN_KINDS, AdmissionAttributes, Webhook, select, webhooks_of
from .policies import AdmissionPolicies

_log: Final = logging.getLogger(__name__)

Object = dict[str, Any]


class _FailedError(Exception):
    """Raised when a call of a webhook fails, or its response is invalid."""


class AdmissionWebhooks:
    """Admission webhooks of one cluster, as currently configured."""

    def __init__(self, state: State, webhook_client: WebhookClient, converter: Converter) -> None:
        self._state = state
        self._webhook_client = webhook_client
        self._converter = converter
        self._conditions = Conditions()
        self._policies = AdmissionPolicies(state)
        self._known: dict[tuple[str, str], list[Webhook]] = {}
        state.store.on_change.append(self._observe)

    def _observe(self, table: Table, change: Change) -> None:
        if table.resource in CONFIGURATIONS:
            self._known.pop(table.resource, None)

    def _webhooks(self, resource: tuple[str, str]) -> list[Webhook]:
        """Return the webhooks of the configurations of the resource, ordered by name."""
        known = self._known.get(resource)
        if known is None:
            table = self._state.store.table(resource)
            known = [hook for key in table.keys() for hook in webhooks_of(table.objects[key].obj)]  # noqa: SIM118 -- in order
            self._known[resource] = known
        return known

    # -- phases ---------------------------------------------------------------------------------------------------

    def any_match(self, attributes: AdmissionAttributes) -> bool:
        """Return whether any webhook or policy matches."""
        return self._policies.any_match(attributes) or (
            not attributes.is_exempt
            and any(
                self._selected_kind(hook, attributes) is not None
                for resource in (MUTATING, VALIDATING)
                for hook in self._webhooks(resource)
            )
        )

    async def mutate(self, attributes: AdmissionAttributes) -> Object | None:
        """Return the object as modified by policies and webhooks. Raises ApiError if one denies it."""
        attributes = self._policies.mutate(attributes)
        if attributes.is_exempt or not self._webhooks(MUTATING):
            return attributes.new
        hooks = self._webhooks(MUTATING)
        called: set[str] = set()  # to be reinvoked if the object changes after their call
        reinvoked: set[str] = set()
        for pass_number in (0, 1):
            for at, hook in enumerate(hooks):
                if pass_number and hook.id not in reinvoked:
                    continue
                left = await self._mutate_by(hook, attributes, place=f"round_{pass_number}_index_{at}")
                if left is None:
                    continue
                if left.new is not attributes.new:
                    reinvoked |= called
                    called.clear()
                if hook.is_reinvoked:
                    called.add(hook.id)
                attributes = left
            if not reinvoked:
                break
        return attributes.new

    async def _mutate_by(
        self, hook: Webhook, attributes: AdmissionAttributes, *, place: str
    ) -> AdmissionAttributes | None:
        """Return the attributes with the webhook's changes; None if the webhook does not match."""
        kind = await self._select(hook, attributes)
        if kind is None:
            return None
        seen = await self._in_version(attributes, kind)
        try:
            verdict = await self._call(hook, attributes, seen, kind, mutating=True)
        except _FailedError as error:
            self._handle_failure(
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
            return attributes  # for built-in kinds the real server counts any patch as a change
        if kind is not attributes.kind:
            new = await self._converter.convert(new, attributes.kind)
        return dataclasses.replace(attributes, new=new)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Ask the policies, and call all webhooks concurrently. Raises the first denial after all have responded."""
        self._policies.validate(attributes)
        if attributes.is_exempt or not self._webhooks(VALIDATING):
            return
        selected = []
        for at, hook in enumerate(self._webhooks(VALIDATING)):
            kind = await self._select(hook, attributes)
            if kind is not None:
                selected.append((at, hook, kind, await self._in_version(attributes, kind)))
        errors: list[ApiError] = []

        async def call(at: int, hook: Webhook, kind: Kind, seen: AdmissionAttributes) -> None:
            try:
                await self._call(hook, attributes, seen, kind, mutating=False)
            except _FailedError as error:
                note = f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{at}"
                try:
                    self._handle_failure(hook, attributes.options, error, note=note)
                except ApiError as denial:
                    errors.append(denial)
            except ApiError as denial:
                errors.append(denial)

        if selected:
            async with trio.open_nursery() as nursery:
                for item in selected:
                    nursery.start_soon(call, *item, name=f"call {item[1].name}")
        if errors:
            raise errors[0]

    # -- matching -------------------------------------------------------------------------------------------------

    async def _select(self, hook: Webhook, attributes: AdmissionAttributes) -> Kind | None:
        """Return the version of the kind for the webhook, or None if it does not match."""
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
        for kind in self._state.catalog:
            if kind.resource == attributes.kind.resource and kind is not attributes.kind:
                yield kind

    async def _in_version(self, attributes: AdmissionAttributes, kind: Kind) -> AdmissionAttributes:
        if kind is attributes.kind or attributes.subresource in FOREIGN_KINDS:
            return attributes
        new = None if attributes.new is None else await self._converter.convert(attributes.new, kind)
        old = None if attributes.old is None else await self._converter.convert(attributes.old, kind)
        return dataclasses.replace(attributes, new=new, old=old)

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(
        self, hook: Webhook, attributes: AdmissionAttributes, seen: AdmissionAttributes, kind: Kind, *, mutating: bool
    ) -> Verdict:
        """Return the webhook's decision. Raises ApiError if it denies the write, _FailedError if the call fails."""
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

    def _handle_failure(self, hook: Webhook, options: WriteOptions, error: Exception, *, note: str) -> None:
        """Ignore the failure or deny the write, depending on the failure policy."""
        text = f'failed calling webhook "{hook.name}": {error}'
        if not hook.ignores_failures:
            raise internal_error(text)
        _log.warning("Failing open, as the failure policy says: %s", text)
        options.annotations[note] = hook.name


def _plain(obj: Mapping[str, Any]) -> Any:
    """Return the object as webhooks see it: without parts that are encoded already."""
    return msgspec.json.decode(msgspec.json.encode(obj))


def _reshaped(kind: Kind, new: Any, attributes: AdmissionAttributes) -> Object:
    """Return the object that a webhook has patched, with defaults. Raises 500 if it cannot be decoded."""
    if attributes.subresource in FOREIGN_KINDS:
        return dict(new)
    try:
        return decode_object(kind, new, WriteOptions(field_validation="Ignore"), patched=True)
    except ApiError as error:
        raise internal_error(error.message) from None
