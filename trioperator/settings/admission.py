"""Settings of admission and conversion webhooks."""

from __future__ import annotations

from typing import Any, ClassVar

from trioperator.settings.rules import BOOLEAN, COUNT, SECONDS, TEXT, WEBHOOK_SERVER, Section, section, setting


@section
class AdmissionSettings(Section):
    """Settings of admission and conversion webhooks: see docs/settings.md, docs/admission.md and docs/conversion.md."""

    _path: ClassVar[str] = "settings.admission"
    # Whether handlers with a field get the whole objects as ``old`` and ``new``.
    GIVES_WHOLE_OBJECTS: ClassVar[bool] = False

    server: Any = setting(None, WEBHOOK_SERVER.or_none())
    """Server or tunnel that receives the reviews, such as ``WebhookServer()``; default: None. Required if there are
    ``on.validate``, ``on.mutate`` or ``on.convert`` handlers."""

    managed: str | None = setting(None, TEXT.or_none())
    """Name of the webhook configurations that the operator manages, a domain name such as "hooks.example.com"; default:
    None, it manages none."""

    managed_conversions: bool = setting(False, BOOLEAN)
    """Whether the operator writes ``spec.conversion`` of the CRDs that its ``on.convert`` handlers are for; default:
    False, it does not change CRDs."""

    allow_unknown: bool = setting(False, BOOLEAN)
    """Whether reviews for webhooks without a handler allow the write, as in Kopf; default: False, the response is HTTP
    404, and the ``failurePolicy`` of the webhook decides."""

    max_workers: int = setting(256, COUNT)
    """Number of threads for sync handlers of webhooks, which do not wait for the threads of other handlers; default:
    256. Further reviews wait for a thread. Keep it below the pod's limit of processes."""

    shutdown_delay: float | None = setting(None, SECONDS.or_none())
    """Seconds for which webhooks are still served when the operator stops, as Services forward reviews for a while
    after ``/readyz`` fails; longer while reviews arrive, until half of the remaining grace period is over. Default:
    None: 5 if the address is a Service, or with leader election or shards, else 0. API servers have the same setting
    for themselves: ``--shutdown-delay-duration``."""
