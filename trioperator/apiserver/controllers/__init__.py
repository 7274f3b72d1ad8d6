"""Optional controllers that users expect of a cluster, on Trio's clock."""

from __future__ import annotations

from .client import Client
from .controller import Controller, Pace
from .manager import serve_controllers
from .registry import CONTROLLERS, select_controllers

__all__ = ["CONTROLLERS", "Client", "Controller", "Pace", "select_controllers", "serve_controllers"]
