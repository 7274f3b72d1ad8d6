"""The commands ``trioperator pause``, ``unpause`` and ``poke``: leave one object alone, or reconcile it now."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import typer

from trioperator.cli.acting import Act, run_with_client
from trioperator.cli.options import option, taking
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._tooling.pausing import Target
    from trioperator.client import Client

_PAUSED: Final = "trioperator.dev/paused"
_POKED: Final = "trioperator.dev/reconcile-requested-at"


Annotation: TypeAlias = Annotated[
    str, option("--annotation NAME", "Annotation of the operator: its settings.pausing.annotation.")
]


class ObjectsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of commands about a few objects."""

    objects: Annotated[
        list[str], typer.Argument(metavar="KIND/NAME...", help="Objects, such as databases.example.com/orders.")
    ]
    namespace: Annotated[str | None, option("-n --namespace NAME", "Namespace; by default, the context's.")] = None


class PauseOptions(ObjectsOptions, frozen=True, kw_only=True):
    """Options of ``trioperator pause``."""

    until: Annotated[str | None, option("--until END", "When it ends: in 30m, 2h or 3d, or at 2026-12-01T00:00Z.")] = (
        None
    )
    reason: Annotated[str | None, option("--reason TEXT", "Reason, for people to read.")] = None
    annotation: Annotation = _PAUSED


class UnpauseOptions(ObjectsOptions, frozen=True, kw_only=True):
    """Options of ``trioperator unpause``."""

    annotation: Annotation = _PAUSED


class PokeOptions(ObjectsOptions, frozen=True, kw_only=True):
    """Options of ``trioperator poke``."""

    annotation: Annotated[
        str, option("--annotation NAME", "Annotation of the operator: its settings.pausing.poke_annotation.")
    ] = _POKED


@taking(PauseOptions, "PAUSE")
def pause(context: typer.Context, options: PauseOptions) -> None:
    """Pause objects: operators call no handlers for them, and write nothing.

    Timers and daemons are stopped, too. Repeat it to change the end or the reason. Deletions go on.
    """

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._model.pause import Pause
        from trioperator._tooling.pausing import parse_until, pause_object

        end = None if options.until is None else parse_until(options.until, _now())
        reason = " ".join((options.reason or "").split())
        if any("\ud800" <= char <= "\udfff" for char in reason):  # bytes, as Python passes them
            raise ConfigError(f"--reason {reason!r} is not UTF-8.")
        wanted = Pause(end, reason)
        return lambda client: pause_object(client, target, wanted, options.annotation)

    _run(options, prepare)


@taking(UnpauseOptions, "UNPAUSE")
def unpause(context: typer.Context, options: UnpauseOptions) -> None:
    """Unpause objects: operators go on with them, and catch up on what they have missed."""

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._tooling.pausing import unpause_object

        return lambda client: unpause_object(client, target, options.annotation)

    _run(options, prepare)


@taking(PokeOptions, "POKE")
def poke(context: typer.Context, options: PokeOptions) -> None:
    """Make operators reconcile objects now, whatever they wait for."""

    def prepare(target: Target) -> Callable[[Client], Awaitable[str]]:
        from trioperator._tooling.pausing import poke_object

        return lambda client: poke_object(client, target, options.annotation, _now())

    _run(options, prepare)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _run(options: ObjectsOptions, prepare: Callable[[Target], Callable[[Client], Awaitable[str]]]) -> None:
    """Run what *prepare* returns for each object in turn. All names are parsed before anything is done."""

    def prepare_all() -> Act:
        from trioperator._tooling.pausing import Target

        acts = [prepare(Target.parse(text, options.namespace)) for text in options.objects]

        async def act(client: Client) -> bool:
            for each in acts:
                typer.echo(await each(client))
            return True

        return act

    run_with_client(prepare_all)
