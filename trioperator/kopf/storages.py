"""Storages with Kopf's default names, so that either framework finds what the other one has stored on objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trioperator._handling.storages import diffbase, progress
from trioperator._model.fields import FieldSpec

__all__ = [
    "FINALIZER",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "SmartProgressStorage",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
]

#: Kopf's finalizer.
FINALIZER: Final = "kopf.zalando.org/KopfFinalizerMarker"
_PREFIX: Final = "kopf.zalando.org"
_NAME: Final = "kopf"


class AnnotationsDiffBaseStorage(diffbase.AnnotationsDiffBaseStorage):
    """Storage of the last-handled configuration in an annotation of Kopf's name."""

    def __init__(
        self,
        *,
        prefix: str = _PREFIX,
        key: str = "last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, key=key, ignored_fields=ignored_fields, v1=v1)


class StatusDiffBaseStorage(diffbase.StatusDiffBaseStorage):
    """Storage of the last-handled configuration in the field of the status that Kopf uses."""

    def __init__(
        self,
        *,
        name: str = _NAME,
        field: FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        super().__init__(name=name, field=field, ignored_fields=ignored_fields)


class AnnotationsProgressStorage(progress.AnnotationsProgressStorage):
    """Storage of the progress of handlers in annotations of Kopf's names."""

    def __init__(
        self, *, prefix: str = _PREFIX, verbose: bool = False, touch_key: str = "touch-dummy", v1: bool = True
    ) -> None:
        super().__init__(prefix=prefix, verbose=verbose, touch_key=touch_key, v1=v1)


class StatusProgressStorage(progress.StatusProgressStorage):
    """Storage of the progress of handlers in the field of the status that Kopf uses."""

    def __init__(
        self,
        *,
        name: str = _NAME,
        field: FieldSpec = "status.{name}.progress",
        touch_field: FieldSpec = "status.{name}.dummy",
    ) -> None:
        super().__init__(name=name, field=field, touch_field=touch_field)


class SmartProgressStorage(progress.SmartProgressStorage):
    """Storage of the progress of handlers in Kopf's annotations, which also reads Kopf's field of the status."""

    def __init__(
        self,
        *,
        prefix: str = _PREFIX,
        name: str = _NAME,
        field: FieldSpec = "status.{name}.progress",
        touch_key: str = "touch-dummy",
        touch_field: FieldSpec = "status.{name}.dummy",
        verbose: bool = False,
        v1: bool = True,
    ) -> None:
        super().__init__(
            prefix=prefix, name=name, field=field, touch_key=touch_key, touch_field=touch_field, verbose=verbose, v1=v1
        )
