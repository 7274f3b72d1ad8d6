"""Controllers that users expect of a cluster, each of them optional: what follows from objects, in Trio's time."""

from __future__ import annotations

from .controller import Controller, Pace
from .names import CONTROLLERS, select_controllers
from .serving import serve_controllers

__all__ = ["CONTROLLERS", "Controller", "Pace", "select_controllers", "serve_controllers"]
