"""Declarations and types of options that the commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import typer

T = TypeVar("T", bound=msgspec.Struct)


def declare_option(command: str, *names: str, env: str | tuple[str, ...], **settings: Any) -> Any:
    """Declare an option of a command and its environment variables, ``TRIOPERATOR_{command}_{env}``."""
    variables = [f"TRIOPERATOR_{command}_{name}" for name in ((env,) if isinstance(env, str) else env)]
    return typer.Option(*names, envvar=variables if len(variables) > 1 else variables[0], **settings)


def split_names(names: str) -> tuple[str, ...]:
    """Split a comma-separated list."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def taking(options: type[T]) -> Callable[[Callable[[typer.Context, T], None]], Callable[..., None]]:
    """Make a command of a function that gets its options as a struct, whose fields declare them."""

    def decorate(run: Callable[[typer.Context, T], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def command(context: typer.Context, **given: Any) -> None:
            run(context, options(**{name: value for name, value in given.items() if value is not None}))

        keyword = inspect.Parameter.KEYWORD_ONLY
        context = inspect.Parameter("context", keyword, annotation=typer.Context)
        command.__signature__ = inspect.Signature([context, *map(_parameter, msgspec.structs.fields(options))])  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def _parameter(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    default = () if field.default_factory is not msgspec.NODEFAULT else field.default
    default = inspect.Parameter.empty if default is msgspec.NODEFAULT else default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
