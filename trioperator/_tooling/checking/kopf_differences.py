"""Differences from Kopf in the sources of an operator that was written for it, found without running it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import Final

import trioperator
from trioperator import on
from trioperator._handling.handlers.handler import Activity
from trioperator._model import kopf_names
from trioperator._model.kopf_names import SETTINGS_WITHOUT_EFFECT, explain_missing
from trioperator._model.similar_names import suggest
from trioperator._tooling.checking.async_code import walk_names
from trioperator._tooling.checking.asyncio_calls import describe_replacement
from trioperator._tooling.checking.differences import Difference, Effect, Finding, Findings
from trioperator._tooling.checking.kopf_declarations import find_declaration_differences
from trioperator._tooling.checking.kopf_names import (
    check_setting,
    find_settings,
    find_strings,
    has_own_settings,
    is_kopf,
)
from trioperator._tooling.checking.sources import Source

# Names that `import kopf` has with `python -m trioperator.kopf`, beside trioperator's.
_OWN: Final = frozenset({"AiohttpSession", "cli", "on", "run_tasks", "spawn_tasks", "testing"})
_NAMES: Final[dict[str, tuple[Effect, str]]] = {
    "kopf.AiohttpSession": (
        Effect.FAILS,
        "kopf.AiohttpSession raises a LoginError, as requests are not sent by aiohttp: return a kopf.ConnectionInfo.",
    ),
    "kopf.cli.main": (Effect.NATIVE, "kopf.cli.main() is trioperator.cli.main()."),
    "kopf.testing.KopfRunner": (Effect.NATIVE, "KopfRunner is in trioperator.testing."),
}
_LOGGERS: Final = frozenset(
    {"kopf", "kopf.objects", "kopf.activities", *(f"kopf.activities.{each}" for each in Activity)}
)
_LOG_METHODS: Final = frozenset({"critical", "debug", "error", "exception", "info", "log", "warn", "warning"})
# Options of functions that exist in Kopf only.
_INTERNAL: Final = frozenset({"vault", "insights", "memories"})
_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "kopf.operator": _INTERNAL,
    "kopf.run": _INTERNAL,
    "kopf.spawn_tasks": _INTERNAL,
    "kopf.cli.CLIControls": frozenset({"vault", "loop"}),
}
_PARTS_OF_REGISTRIES: Final = frozenset(
    {"_activities", "_changing", "_indexing", "_spawning", "_watching", "_webhooks"}
)
_PREFIX: Final = "kopf.zalando.org"


def find_kopf_differences(source: Source) -> Iterator[Difference]:
    """Yield the differences from Kopf, in the order of their lines."""
    searches: tuple[Callable[[Source], Findings], ...] = (
        _find_imports,
        _find_names,
        _find_calls,
        _find_settings,
        _find_logging,
        _find_strings,
        _find_asyncio,
        find_declaration_differences,
    )
    found = (finding.place(source.path) for search in searches for finding in search(source))
    yield from sorted(dict.fromkeys(found), key=lambda each: each.line)


def _find_imports(source: Source) -> Findings:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "kopf":
                    text = "import kopf becomes import trioperator as kopf."
                    yield Finding(node, "imports", Effect.NATIVE, text)
                elif is_kopf(alias.name):
                    yield from _check_module(node, alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level and is_kopf(node.module or ""):
            yield from _check_import(node, node.module or "")


def _check_module(node: ast.AST, name: str) -> Findings:
    """Yield notes on the import of a module of Kopf other than ``kopf`` itself."""
    if name in ("kopf.on", "kopf.testing", "kopf.cli"):
        text = f"{name} is {name.replace('kopf', 'trioperator', 1)}."
        yield Finding(node, "imports", Effect.NATIVE, text)
    elif not kopf_names.has_module(name):
        yield Finding(node, "imports", Effect.FAILS, f"The module {kopf_names.describe_missing(name)}")
    else:
        text = f"{name} is private to Kopf, and has only the names that operators import: import them from kopf."
        yield Finding(node, "imports", Effect.DIFFERS, text)


def _check_import(node: ast.ImportFrom, module: str) -> Findings:
    if module != "kopf":
        yield from _check_module(node, module)
    else:
        yield Finding(node, "imports", Effect.NATIVE, "from kopf import becomes from trioperator import.")
    if module not in ("kopf", "kopf.on", "kopf.testing", "kopf.cli"):
        for alias in node.names if kopf_names.has_module(module) else ():
            full = f"{module}.{alias.name}"
            if not (kopf_names.find_place(module, alias.name) or kopf_names.has_module(full)):
                yield Finding(node, "imports", Effect.FAILS, kopf_names.describe_missing(full))
        return
    for alias in node.names:
        yield from _check_name(node, f"{module}.{alias.name}")


def _find_names(source: Source) -> Findings:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            yield from _check_name(node, source.resolve(node) or "")
            yield from _check_part_of_registry(node)


def _check_name(node: ast.AST, name: str) -> Findings:
    """Yield notes on a dotted name of Kopf's public modules."""
    if name in _NAMES:
        yield Finding(node, "names", *_NAMES[name])
        return
    module, _, attribute = name.rpartition(".")
    known = {"kopf": {*dir(trioperator), *_OWN}, "kopf.on": set(on.__all__)}.get(module)
    if known is None or attribute in ("*", "_cogs", "_core", "_kits") or attribute.startswith("__"):
        return
    if attribute not in known:
        text = f"{module} has no {suggest([attribute], [each for each in known if each[:1] != '_'])}."
        yield Finding(node, "names", Effect.FAILS, text)
    elif module == "kopf" and attribute in ("run_tasks", "spawn_tasks"):
        yield Finding(node, "names", Effect.NATIVE, explain_missing("kopf", attribute))


def _check_part_of_registry(node: ast.Attribute) -> Findings:
    """Yield notes on ``registry._changing._handlers`` and the like."""
    part = node.value.attr if isinstance(node.value, ast.Attribute) else ""
    if part in _PARTS_OF_REGISTRIES and node.attr in ("_handlers", "get_all_handlers", "get_all_selectors"):
        text = f"{part}.{node.attr} of a registry is private to Kopf, and does not exist natively: remove it."
        yield Finding(node, "names", Effect.NATIVE, text)


def _find_calls(source: Source) -> Findings:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = source.resolve(node.func) or ""
        for option in node.keywords:
            if option.arg in _OPTIONS.get(name, ()):
                text = f"{name}() has no option {option.arg}=: remove it."
                yield Finding(option, "options", Effect.FAILS, text)
        if name.startswith("kopf.Webhook") and (problem := _describe_server(node)):
            yield Finding(node, "options", Effect.NATIVE, problem)
        elif name == "kopf.OperatorSettings" and node.args:
            yield Finding(node, "options", Effect.FAILS, "kopf.OperatorSettings() takes its sections by name only.")
        elif name == "asyncio.run" and any(_is_operator(source, arg) for arg in node.args):
            text = "asyncio.run(kopf.operator()) becomes trio.run(trioperator.operator)."
            yield Finding(node, "asyncio", Effect.NATIVE, text)


def _describe_server(call: ast.Call) -> str | None:
    """Describe how a webhook server differs from Kopf's."""
    given = {option.arg for option in call.keywords}
    if "certfile" not in given or given & {"cafile", "cadata", None}:
        return None
    return "certfile= without cafile=: natively, pass the same file as cafile=, unless API servers trust its CA anyway."


def _is_operator(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.resolve(node.func) == "kopf.operator"


def _find_settings(source: Source) -> Findings:
    for node in find_settings(source.tree, ours=not has_own_settings(source)):
        section = node.value.attr if isinstance(node.value, ast.Attribute) else ""
        name = f"settings.{section}.{node.attr}"
        if ast.unparse(node) != name:
            continue
        useless, instead = SETTINGS_WITHOUT_EFFECT.get(section, ({}, ""))
        if node.attr in useless:
            yield Finding(
                node, "settings", Effect.DIFFERS, f"{name} has no effect, and does not exist natively: {instead}"
            )
        elif name == "settings.watching.chunk_size":
            yield Finding(node, "settings", Effect.NATIVE, f"{name} is settings.watching.page_size.")
        elif problem := check_setting(node):
            yield _describe_unknown(node, problem)


def _describe_unknown(node: ast.Attribute, problem: str) -> Finding:
    """Describe what happens to a setting that Kopf does not have either: Kopf accepts whatever is assigned."""
    if isinstance(node.ctx, ast.Store):
        return Finding(node, "settings", Effect.NATIVE, f"{problem} It has no effect in Kopf either: remove it.")
    return Finding(node, "settings", Effect.FAILS, problem)


def _find_logging(source: Source) -> Findings:
    has_own = "logger" in source.names  # else it is the argument of handlers
    made = {"logging", *_find_made_loggers(source)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.resolve(node.func) == "logging.getLogger" and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            if isinstance(name, str) and is_kopf(name):
                yield _describe_logger(node, name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("logger.extra", "logger.process"):
            if not has_own:
                text = f"The argument logger has no {node.attr}, as it is no logging.LoggerAdapter."
                yield Finding(node, "logs", Effect.FAILS, text)
        elif isinstance(node, ast.Call) and not has_own and (extra := _find_extra(node, made)):
            text = "extra= also shows in the message, if the logger is the argument of a handler."
            yield Finding(extra, "logs", Effect.DIFFERS, text)


def _find_made_loggers(source: Source) -> Iterator[str]:
    """Yield the names and attributes, such as ``self.log``, that loggers of :mod:`logging` are assigned to."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            is_made = source.resolve(node.value.func) == "logging.getLogger"
            yield from map(ast.unparse, node.targets if is_made else ())


def _find_extra(call: ast.Call, made: Collection[str]) -> ast.keyword | None:
    """Return the argument ``extra`` of a call of a logger, unless it is one of those that are *made* elsewhere."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOG_METHODS:
        return None
    if ast.unparse(call.func.value) in made:
        return None
    return next((each for each in call.keywords if each.arg == "extra"), None)


def _describe_logger(node: ast.AST, name: str) -> Finding:
    if name in _LOGGERS:
        return Finding(node, "logs", Effect.NATIVE, f"The logger {name} is {name.replace('kopf', 'trioperator', 1)}.")
    text = f"Nothing is logged by {name}, so that its level, filters and handlers have no effect: see {_parent(name)}."
    return Finding(node, "logs", Effect.DIFFERS, text)


def _parent(name: str) -> str:
    return "trioperator.objects" if name.startswith("kopf.objects") else "trioperator"


def _find_strings(source: Source) -> Findings:
    for node, text in find_strings(source.tree):
        if f"{_PREFIX}/" in text:
            message = f"{text!r} is named trioperator.dev/… natively, unless you keep Kopf's prefix and finalizer."
            yield Finding(node, "names", Effect.NATIVE, message)
        elif text.startswith(("KOPF_RUN_", "KOPF_FREEZE_", "KOPF_RESUME_")):
            yield Finding(node, "names", Effect.NATIVE, f"{text} is TRIOPERATOR{text.removeprefix('KOPF')}.")


def _find_asyncio(source: Source) -> Findings:
    """Yield what async code uses of asyncio and its libraries. Code in threads may use them natively, too."""
    functions = [node for node in ast.walk(source.tree) if isinstance(node, ast.AsyncFunctionDef)]
    for node in walk_names(source, [source.tree, *functions]):
        name = source.resolve(node)
        if name and (text := describe_replacement(name)):
            yield Finding(node, "asyncio", Effect.NATIVE, f"{name} needs asyncio: natively, use {text}.")
