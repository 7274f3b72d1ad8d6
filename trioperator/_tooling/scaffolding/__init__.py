"""New projects: the files of an operator, from templates. Pure, except that the templates are read."""

from __future__ import annotations

from trioperator._tooling.scaffolding.project import ProjectOptions, render_project

__all__ = ["ProjectOptions", "render_project"]
