"""The table ``[tool.trioperator]`` of a project's pyproject.toml: options of commands, which need not be repeated."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from trioperator.errors import ConfigError

#: The commands that have options in the table.
COMMANDS: Final = ("run", "check", "explore", "rbac", "manifests", "bundle", "crds")

#: A parameter of Click, or of the Click in Typer.
Parameter: TypeAlias = Any

_FILE: Final = "pyproject.toml"
_TABLE: Final = "[tool.trioperator]"
# Options with the same meaning for all commands that have them. Other options are in the table of their command.
_SHARED: Final = frozenset(
    {
        *(
            "files",
            "modules",
            "namespaces",
            "all-namespaces",
            "standalone",
            "peering",
            "leader-elect",
            "lease",
            "shards",
        ),
        *("scanning", "events", "managed", "managed-conversions", "ca-secret", "rules", "name", "pod-namespace"),
        *("image", "replicas", "prometheus", "other-crds"),
    }
)
# The types of values, by prefixes of the names of parameter types.
_TYPES: Final[Mapping[str, tuple[type, str]]] = {"bool": (bool, "true or false"), "int": (int, "a whole number")}


def read_table(path: str = _FILE) -> Mapping[str, Any]:
    """Return the table of the project in the current directory; it is empty without one. Raises ConfigError."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return {}
    if b"trioperator" not in content:
        return {}
    import tomllib

    try:
        table = tomllib.loads(content.decode()).get("tool", {}).get("trioperator", {})
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not valid: {error}.") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path} has tool.trioperator={table!r}: it must be a table, {_TABLE}.")
    return table


def find_options(command: str) -> Mapping[str, Any]:
    """Return what the table says for a command, as it is there. Raises ConfigError."""
    table = read_table()
    own = table.get(command, {})
    return {**table, **(own if isinstance(own, dict) else {})}


def find_defaults(
    table: Mapping[str, Any], command: str, commands: Mapping[str, Sequence[Parameter]]
) -> dict[str, Any]:
    """Return the values of a command's parameters in the table. *commands* have the parameters of all commands.

    Raises ConfigError for unknown keys, with the most similar option, and for values of a wrong type.
    """
    options = {name: dict(_list_options(parameters)) for name, parameters in commands.items()}
    own = table.get(command, {})
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in commands and isinstance(value, dict):
            continue
        _check_shared(key, options)
        if key in options[command]:
            found |= _take(options[command][key], key, value, where=_TABLE)
    for key, value in own.items() if isinstance(own, dict) else ():
        where = f"[tool.trioperator.{command}]"
        if key not in options[command]:
            raise ConfigError(
                f"{_FILE} has {_suggest(key, options[command])} in {where}: {command} has no such option."
            )
        found |= _take(options[command][key], key, value, where=where)
    return found


def _list_options(parameters: Sequence[Parameter]) -> Iterator[tuple[str, Parameter]]:
    """Yield parameters by their keys: lists in the plural, or as they are on the command line."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            yield str(parameter.name), parameter
            continue
        long = next((name for name in parameter.opts if name.startswith("--")), "").removeprefix("--")
        if long not in ("", "help"):
            yield long, parameter
            if getattr(parameter, "multiple", False) and not long.endswith("s") and long != "apply":
                yield f"{long}s", parameter


def _check_shared(key: str, options: Mapping[str, Mapping[str, Parameter]]) -> None:
    """Raise ConfigError if a key may not be in the table for all commands."""
    having = [command for command, known in options.items() if key in known]
    if key in _SHARED or (having and f"{key}s" in _SHARED):
        return
    if having:
        tables = ", ".join(f"[tool.trioperator.{command}]" for command in having)
        raise ConfigError(f"{_FILE} has {key} in {_TABLE}: it is an option of one command, so put it into {tables}.")
    raise ConfigError(f"{_FILE} has {_suggest(key, {*_SHARED, *options})} in {_TABLE}, which is no option.")


def _suggest(key: str, known: Any) -> str:
    from trioperator._model.similar_names import suggest

    return suggest([key], list(known))


def _take(parameter: Parameter, key: str, value: Any, *, where: str) -> dict[str, Any]:
    """Return the value of a parameter by its name. Raises ConfigError if it has another type."""
    name = str(parameter.type.name)
    expected, shown = next((each for kind, each in _TYPES.items() if name.startswith(kind)), (str, "a string"))
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return {str(parameter.name): value}
        raise ConfigError(f"{_FILE} has {key}={value!r} in {where}: it must be an array of strings.")
    if isinstance(value, bool) is not (expected is bool) or not isinstance(value, expected):
        raise ConfigError(f"{_FILE} has {key}={value!r} in {where}: it must be {shown}.")
    return {str(parameter.name): value}
