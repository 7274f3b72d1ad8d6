"""Declarations and types of options that the commands share."""

from __future__ import annotations

from typing import Any

import typer


def declare_option(command: str, *names: str, env: str | tuple[str, ...], **settings: Any) -> Any:
    """Declare an option of a command and its environment variables, ``TRIOPERATOR_{command}_{env}``."""
    variables = [f"TRIOPERATOR_{command}_{name}" for name in ((env,) if isinstance(env, str) else env)]
    return typer.Option(*names, envvar=variables if len(variables) > 1 else variables[0], **settings)


def split_names(names: str) -> tuple[str, ...]:
    """Split a comma-separated list."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))
