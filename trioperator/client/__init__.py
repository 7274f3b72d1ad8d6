"""The client of handlers and scripts: :class:`Client`, and :func:`open_client`."""

from trioperator._model.conditions import Condition
from trioperator.client.client import Client, Propagation
from trioperator.client.connection import Connection, SyncConnection
from trioperator.client.session import open_client
from trioperator.client.sync import SyncClient
from trioperator.client.watching import ObjectEvent

__all__ = [
    "Client",
    "Condition",
    "Connection",
    "ObjectEvent",
    "Propagation",
    "SyncClient",
    "SyncConnection",
    "open_client",
]
