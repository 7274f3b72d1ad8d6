"""The commands ``trioperator pause``, ``unpause`` and ``poke``: leave one object alone, or reconcile it now."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator.cli.acting import Act, run_with_client
from trioperator.cli.options import declare_option

if TYPE_CHECKING:
    from trioperator._tooling.pausing import Target
    from trioperator.client import Client

_PAUSED: Final = "trioperator.dev/paused"
_POKED: Final = "trioperator.dev/reconcile-requested-at"


def _namespace(command: str) -> Any:
    text = "Namespace; by default, the context's."
    return declare_option(command, "-n", "--namespace", env="NAMESPACE", metavar="NAME", help=text)


def _annotation(command: str, setting: str) -> Any:
    text = f"Annotation of the operator: its settings.pausing.{setting}."
    return declare_option(command, "--annotation", env="ANNOTATION", metavar="NAME", help=text)


Objects: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="KIND/NAME...", help="Objects, such as databases.example.com/orders.")
]
Until: TypeAlias = Annotated[
    str | None,
    declare_option(
        "PAUSE", "--until", env="UNTIL", metavar="END", help="When it ends: in 30m, 2h or 3d, or at 2026-12-01T00:00Z."
    ),
]
Reason: TypeAlias = Annotated[
    str | None, declare_option("PAUSE", "--reason", env="REASON", metavar="TEXT", help="Why, for people.")
]


def pause(
    objects: Objects,
    namespace: Annotated[str | None, _namespace("PAUSE")] = None,
    until: Until = None,
    reason: Reason = None,
    annotation: Annotated[str, _annotation("PAUSE", "annotation")] = _PAUSED,
) -> None:
    """Let operators leave objects alone: no handler, timer, daemon or write.

    Call it again to change the end or the reason. Deletions go on.
    """

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._model.pause import Pause
        from trioperator._tooling.pausing import parse_until, pause_object

        end = None if until is None else parse_until(until, _now())
        wanted = Pause(end, " ".join((reason or "").split()))
        return lambda client: pause_object(client, target, wanted, annotation)

    _run(objects, namespace, prepare)


def unpause(
    objects: Objects,
    namespace: Annotated[str | None, _namespace("UNPAUSE")] = None,
    annotation: Annotated[str, _annotation("UNPAUSE", "annotation")] = _PAUSED,
) -> None:
    """Let operators go on with objects that were paused, with all that was missed."""

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._tooling.pausing import unpause_object

        return lambda client: unpause_object(client, target, annotation)

    _run(objects, namespace, prepare)


def poke(
    objects: Objects,
    namespace: Annotated[str | None, _namespace("POKE")] = None,
    annotation: Annotated[str, _annotation("POKE", "poke_annotation")] = _POKED,
) -> None:
    """Let operators reconcile objects now, whatever they wait for."""

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._tooling.pausing import poke_object

        return lambda client: poke_object(client, target, annotation, _now())

    _run(objects, namespace, prepare)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _run(
    objects: list[str], namespace: str | None, prepare: Callable[[Target], Callable[[Client], Awaitable[str]]]
) -> None:
    """Do what is prepared for each object in turn. All of them are parsed before anything is done."""

    def prepare_all() -> Act:
        from trioperator._tooling.pausing import Target

        acts = [prepare(Target.parse(text, namespace)) for text in objects]

        async def act(client: Client) -> bool:
            for each in acts:
                typer.echo(await each(client))
            return True

        return act

    run_with_client(prepare_all)
