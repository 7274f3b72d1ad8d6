"""Declarations and types of options that the commands share."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import typer

from trioperator._model.namespaces import may_exist
from trioperator._model.signatures import set_signature

T = TypeVar("T", bound=msgspec.Struct)


def option(declaration: str, help: str, *, env: str | tuple[str, ...] = (), **settings: Any) -> Any:
    """Declare an option of a command: its names, a word for its value if it has one, and its help.

    ::

        option("-n --namespace NAME", "Objects of this namespace only; repeatable.")

    *env* are its environment variables, which :func:`taking` prefixes with the command; by default the long name of the
    option, such as ``NAMESPACE``.
    """
    words = declaration.split()
    names = [word for word in words if word.startswith("-")]
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variables = [env] if isinstance(env, str) else list(env)
    envvar = variables or [long[2:].replace("-", "_").upper()]
    metavar = words[-1] if len(words) > len(names) else None
    return typer.Option(*names, envvar=envvar, metavar=metavar, help=help, **settings)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of commands that load the handlers of an operator."""

    files: Annotated[
        list[str], typer.Argument(metavar="FILES", help="Python files with handlers.", show_default=False)
    ] = []
    modules: Annotated[
        list[str], option("-m --module NAME", "Import a module with handlers; repeatable.", env="MODULES")
    ] = []

    def check_sources(self) -> None:
        """Raise BadParameter if there is nothing to load."""
        if not self.files and not self.modules:
            raise typer.BadParameter("pass files or modules (-m) with handlers.", param_hint="FILES")


def check_scope(*, clusterwide: bool, namespaces: Collection[str]) -> None:
    """Raise BadParameter for all namespaces together with some, and for what can be no name of a namespace."""
    if clusterwide and namespaces:
        raise typer.BadParameter("pass either -n or -A, not both.", param_hint="'-n' / '-A'")
    if not all(map(str.strip, namespaces)):
        raise typer.BadParameter("the name of a namespace is empty.", param_hint="'-n'")
    for name in namespaces:
        if not may_exist(name):
            rule = "it must consist of lower-case letters, digits and '-', at most 63"
            raise typer.BadParameter(f"{name!r} can be no namespace: {rule}.", param_hint="'-n'")


def check_lease(context: typer.Context, *, has_lease: bool) -> None:
    """Raise BadParameter for a Lease on the command line that nothing takes."""
    source = context.get_parameter_source("lease")
    if source is not None and source.name == "COMMANDLINE" and not has_lease:  # elsewhere, it may be for other commands
        raise typer.BadParameter("it requires --leader-elect or --shards.", param_hint="'--lease'")


def split_names(names: str) -> tuple[str, ...]:
    """Split a comma-separated list."""
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def taking(options: type[T], command: str = "") -> Callable[[Callable[[typer.Context, T], None]], Callable[..., None]]:
    """Turn a function of a struct into a command, whose options are the fields of the struct.

    Their environment variables begin with ``TRIOPERATOR_{command}_``.
    """

    def decorate(run: Callable[[typer.Context, T], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def taken(context: typer.Context, **given: Any) -> None:
            chosen = {name: value for name, value in given.items() if value is not None}
            for name, value in chosen.items():
                if isinstance(value, float) and math.isnan(value):  # which passes for any range
                    raise typer.BadParameter("it is not a number.", param_hint=f"'--{name}'")
            run(context, options(**chosen))

        prefix = f"TRIOPERATOR_{command}_" if command else "TRIOPERATOR_"
        parameters = [_make_parameter(field, prefix) for field in msgspec.structs.fields(options)]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        set_signature(taken, inspect.Signature([context, *parameters]))
        taken.__annotations__ = {}
        return taken

    return decorate


def _make_parameter(field: msgspec.structs.FieldInfo, prefix: str) -> inspect.Parameter:
    type_, declared = get_args(field.type)
    declared = copy.copy(declared)
    if declared.envvar:
        names = [f"{prefix}{name}" for name in declared.envvar]
        declared.envvar = names if len(names) > 1 else names[0]
    default = () if field.default_factory is not msgspec.NODEFAULT else field.default
    default = inspect.Parameter.empty if default is msgspec.NODEFAULT else default
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, keyword, default=default, annotation=Annotated[type_, declared])
