"""Settings of pauses of single objects, and of requests to reconcile them."""

from __future__ import annotations

from typing import ClassVar

from trioperator.settings.rules import BOOLEAN, QUALIFIED_NAME, Section, section, setting


@section
class PausingSettings(Section):
    """Settings of pauses of single objects, and of requests to reconcile them: see docs/settings.md."""

    _path: ClassVar[str] = "settings.pausing"

    annotation: str | None = setting("trioperator.dev/paused", QUALIFIED_NAME.or_none())
    """Annotation that pauses an object; default: "trioperator.dev/paused" (Kopf: none). None: no object is paused."""

    poke_annotation: str | None = setting("trioperator.dev/reconcile-requested-at", QUALIFIED_NAME.or_none())
    """Annotation of which each new value requests a reconcile; default: "trioperator.dev/reconcile-requested-at" (Kopf:
    none). None: there is no such annotation."""

    condition: str | None = setting("Paused", QUALIFIED_NAME.or_none())
    """Type of the condition that paused objects get, if the schema of their kind has conditions; default: "Paused".
    None: they get none."""

    holds_deletion: bool = setting(False, BOOLEAN)
    """Whether a paused object with the operator's finalizer that is deleted stays until it is no longer paused;
    default: False: the deletion goes on as if it were not paused."""
