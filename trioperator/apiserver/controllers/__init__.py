"""Controllers that users expect of a cluster, each of them optional: what follows from objects, in Trio's time."""

from __future__ import annotations

from .client import Client
from .controller import Controller, Pace
from .manager import serve_controllers
from .registry import CONTROLLERS, select_controllers

__all__ = ["CONTROLLERS", "Client", "Controller", "Pace", "select_controllers", "serve_controllers"]
