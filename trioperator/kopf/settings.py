"""Settings with Kopf's defaults, which also accept Kopf's settings that have no meaning here."""

# ruff: noqa: RUF009 -- the calls in the defaults make dataclass fields

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trioperator import settings
from trioperator._logs import get_logger
from trioperator._model.kopf_names import SETTINGS_WITHOUT_EFFECT
from trioperator.kopf.storages import FINALIZER, AnnotationsDiffBaseStorage, SmartProgressStorage
from trioperator.settings.rules import (
    BOOLEAN,
    COUNT,
    DIFFBASE_STORAGE,
    EXECUTOR,
    NAME_PREFIX,
    PROGRESS_STORAGE,
    QUALIFIED_NAME,
    SECONDS,
    TIMEOUT,
    Rule,
    Section,
    setting,
)
from trioperator.settings.rules import FINALIZER as FINALIZER_RULE

_logger: Final = get_logger("trioperator.kopf")
_NO_BATCHING: Final = (
    "Batching settings are now queueing settings: write settings.queueing in place of settings.batching."
)


class _Tolerant(Section):
    """Section that accepts whatever Kopf accepts, with a warning.

    That is: Kopf's settings that have no meaning here, unknown names, and values that Kopf reads in its own way.
    Settings can be read as they were set.

    ``_without_effect`` are the defaults of Kopf's settings without an effect, ``_instead`` is what to use in place of
    them. The classes have no slots, but a ``__dict__`` for these.
    """

    __slots__ = ()
    _without_effect: ClassVar[Mapping[str, Any]] = {}
    _instead: ClassVar[str] = ""

    def __setattr__(self, name: str, value: Any) -> None:
        field = self.__dataclass_fields__.get(name)
        if field is not None:
            super().__setattr__(name, self._read(name, field.metadata["rule"], value))
        elif isinstance(getattr(type(self), name, None), property):
            super().__setattr__(name, value)
        else:
            reason = self._instead if name in self._without_effect else "Kopf has no such setting either."
            _logger.warning("%s.%s = %r has no effect here: %s", self._path, name, value, reason)
            object.__setattr__(self, name, value)

    def _read(self, name: str, rule: Rule, value: Any) -> Any:
        """Return a value as Kopf interprets it, with a warning if our settings would not accept it."""
        if rule.accepts(value):
            return value
        found = _read_as_kopf(rule, value)
        if found is not value:
            _logger.warning("%s.%s = %r is taken for %r.", self._path, name, value, found)
        return found

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            if name in self._without_effect:
                return self._without_effect[name]
            return super().__getattr__(name)


def _read_as_kopf(rule: Rule, value: Any) -> Any:
    """Return a value as Kopf interprets it: truthy values as booleans, strings as numbers, zero as no timeout."""
    if rule is BOOLEAN:
        return bool(value)
    if isinstance(value, str):
        numbers = (_parse(kind, value) for kind in (int, float))
        return next((number for number in numbers if number is not None and rule.accepts(number)), value)
    is_zero = value == 0 and not isinstance(value, bool)
    return None if is_zero and rule.expected == TIMEOUT.or_none().expected else value


def _parse(kind: type[int | float], text: str) -> int | float | None:
    try:
        return kind(text)
    except ValueError:
        return None


class _ProcessSettings(_Tolerant, settings.ProcessSettings):
    _without_effect, _instead = SETTINGS_WITHOUT_EFFECT["process"]


class _PeeringSettings(_Tolerant, settings.PeeringSettings):
    _without_effect, _instead = SETTINGS_WITHOUT_EFFECT["peering"]

    @property
    def namespaced(self) -> bool:
        """The opposite of ``clusterwide``."""
        return not self.clusterwide

    @namespaced.setter
    def namespaced(self, value: bool) -> None:
        self.clusterwide = not value


@dataclasses.dataclass(kw_only=True)
class _QueueingSettings(_Tolerant, settings.QueueingSettings):
    _without_effect, _instead = SETTINGS_WITHOUT_EFFECT["queueing"]

    worker_limit: int | None = setting(None, COUNT.or_none())

    batch_window: float = setting(0.1, SECONDS)


class _ScanningSettings(_Tolerant, settings.ScanningSettings):
    pass


class _NetworkingSettings(_Tolerant, settings.NetworkingSettings):
    pass


@dataclasses.dataclass(kw_only=True)
class _ExecutionSettings(_Tolerant, settings.ExecutionSettings):
    max_workers: Any = setting(None, COUNT.or_none())

    executor: Any = dataclasses.field(default=None, metadata={"rule": EXECUTOR.or_none()})

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "executor" and value is None:
            Section.__setattr__(self, name, ThreadPoolExecutor())  # of Kopf's size: no thread begins before it is used
        elif name == "max_workers":
            Section.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


@dataclasses.dataclass(kw_only=True)
class _BackgroundSettings(_Tolerant, settings.BackgroundSettings):
    _without_effect, _instead = SETTINGS_WITHOUT_EFFECT["background"]

    spread: float = setting(0.0, SECONDS)


@dataclasses.dataclass(kw_only=True)
class _AdmissionSettings(_Tolerant, settings.AdmissionSettings):
    GIVES_WHOLE_OBJECTS = True

    allow_unknown: bool = setting(True, BOOLEAN)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "server" and value is not None:
            from trioperator.kopf.servers import adapt_server  # most operators have no webhooks

            super().__setattr__(name, value)  # raises ConfigError for a wrong one
            value = adapt_server(value)
        super().__setattr__(name, value)


class _WatchingSettings(_Tolerant, settings.WatchingSettings):
    INFERS_FOR_EVENTS = False

    @property
    def chunk_size(self) -> int | None:
        """Kopf's name of ``page_size``."""
        return self.page_size

    @chunk_size.setter
    def chunk_size(self, value: int | None) -> None:
        if value:  # Kopf lists all objects at once without one
            self.page_size = value


@dataclasses.dataclass(kw_only=True)
class _PostingSettings(_Tolerant, settings.PostingSettings):
    _without_effect, _instead = SETTINGS_WITHOUT_EFFECT["posting"]

    loggers: bool = setting(False, BOOLEAN)
    reporting_component: str = setting("kopf", QUALIFIED_NAME)
    event_name_prefix: str = setting("kopf-event-", NAME_PREFIX)


@dataclasses.dataclass(kw_only=True)
class _PersistenceSettings(_Tolerant, settings.PersistenceSettings):
    needs_fields = True

    finalizer: str | None = setting(FINALIZER, FINALIZER_RULE.or_none())
    progress_storage: Any = dataclasses.field(
        default_factory=SmartProgressStorage, metadata={"rule": PROGRESS_STORAGE.or_none()}
    )
    diffbase_storage: Any = dataclasses.field(
        default_factory=AnnotationsDiffBaseStorage, metadata={"rule": DIFFBASE_STORAGE.or_none()}
    )


def _carry_over(source: Section, target: Section) -> None:
    """Copy the settings that have no effect, but can be read."""
    for name, value in getattr(source, "__dict__", {}).items():
        if name not in source.__dataclass_fields__:
            object.__setattr__(target, name, value)


def _section(name: str, kind: type[Section]) -> Any:
    rule = settings.OperatorSettings.__dataclass_fields__[name].metadata["rule"]
    return dataclasses.field(default_factory=kind, metadata={"rule": rule})


@dataclasses.dataclass(kw_only=True)
class OperatorSettings(_Tolerant, settings.OperatorSettings):
    """Settings of an operator that was written for Kopf.

    The finalizer, the annotations, the names in Kubernetes Events and ``posting.loggers`` are the same as in Kopf.
    Kopf's settings that have no meaning here are accepted with a warning, and so are unknown names.
    """

    inherit_patches: ClassVar[bool] = True
    share_ids: ClassVar[bool] = True

    def copy(self) -> OperatorSettings:
        """Return a copy of the settings, including those without an effect."""
        copied = super().copy()
        assert isinstance(copied, OperatorSettings)
        _carry_over(self, copied)
        for field in dataclasses.fields(self):
            _carry_over(getattr(self, field.name), getattr(copied, field.name))
        return copied

    @property
    def batching(self) -> settings.QueueingSettings:
        """Old name of ``queueing``, which is deprecated in Kopf."""
        warnings.warn(_NO_BATCHING, DeprecationWarning, stacklevel=2)
        return self.queueing

    @batching.setter
    def batching(self, value: settings.QueueingSettings) -> None:
        warnings.warn(_NO_BATCHING, DeprecationWarning, stacklevel=2)
        self.queueing = value

    process: settings.ProcessSettings = _section("process", _ProcessSettings)
    posting: settings.PostingSettings = _section("posting", _PostingSettings)
    peering: settings.PeeringSettings = _section("peering", _PeeringSettings)
    watching: settings.WatchingSettings = _section("watching", _WatchingSettings)
    queueing: settings.QueueingSettings = _section("queueing", _QueueingSettings)
    scanning: settings.ScanningSettings = _section("scanning", _ScanningSettings)
    networking: settings.NetworkingSettings = _section("networking", _NetworkingSettings)
    execution: settings.ExecutionSettings = _section("execution", _ExecutionSettings)
    admission: settings.AdmissionSettings = _section("admission", _AdmissionSettings)
    persistence: settings.PersistenceSettings = _section("persistence", _PersistenceSettings)
    background: settings.BackgroundSettings = _section("background", _BackgroundSettings)


def _keep_in_dict(*sections: type[Section]) -> None:
    """Keep the values of sections in ``__dict__``, as Kopf does, because programs update it. Slots would hide it."""
    for section in sections:
        for field in dataclasses.fields(section):
            setattr(section, field.name, None if field.default is dataclasses.MISSING else field.default)


_keep_in_dict(_ProcessSettings, _PostingSettings, _PeeringSettings, _WatchingSettings, _QueueingSettings)
_keep_in_dict(_ScanningSettings, _AdmissionSettings, _ExecutionSettings, _NetworkingSettings)
_keep_in_dict(_PersistenceSettings, _BackgroundSettings, OperatorSettings)
