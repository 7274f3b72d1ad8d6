"""Settings: how the framework behaves in detail, one tree for each operator.

Startup handlers change them by assignment. Nonsense is refused there and then, by a ConfigError that names the setting;
so is a name that does not exist, by an AttributeError that names the nearest one. All times are in seconds. Nothing is
read from the environment. Names, meanings and defaults are Kopf's ("Configuration") unless said otherwise.
"""

from __future__ import annotations

from trioperator.settings.tree import (
    AdmissionSettings,
    BackgroundSettings,
    ExecutionSettings,
    NetworkingSettings,
    OperatorSettings,
    PeeringSettings,
    PersistenceSettings,
    PostingSettings,
    ProcessSettings,
    QueueingSettings,
    ScanningSettings,
    WatchingSettings,
)

__all__ = [
    "AdmissionSettings",
    "BackgroundSettings",
    "ExecutionSettings",
    "NetworkingSettings",
    "OperatorSettings",
    "PeeringSettings",
    "PersistenceSettings",
    "PostingSettings",
    "ProcessSettings",
    "QueueingSettings",
    "ScanningSettings",
    "WatchingSettings",
]
