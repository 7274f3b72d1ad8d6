"""Plays: one run of the operator, in virtual time, with an object that goes through a sequence of states."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import trio
import trio.testing

from trioperator._concurrency.clock import wall_now, wall_starts_at
from trioperator._model.exception_groups import iterate_leaves
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConfigError, TrioperatorError
from trioperator.testing.autojump import serial_threads
from trioperator.testing.determinism import deterministic
from trioperator.testing.effects import Outside, play_outside
from trioperator.testing.exploring.app import App, find_kopf
from trioperator.testing.exploring.outside import HOW_TO_FAKE, Deadline, OutsideCallError, refuse_outside_calls
from trioperator.testing.exploring.perturbations import NONE, Perturbation
from trioperator.testing.exploring.stages import Stage
from trioperator.testing.exploring.steps import Play
from trioperator.testing.exploring.subjects import State, Subject, World
from trioperator.testing.exploring.troubles import Trouble
from trioperator.testing.library_clients import routed_libraries
from trioperator.testing.library_routes import routing_to
from trioperator.testing.operator_runner import open_unchecked_runner
from trioperator.testing.recording import LOGGERS

_HOUR: Final = 3600.0
# Seconds of a play, after which it hangs: of the processor, or real ones without progress.
_PATIENCE: Final = 30.0
_START: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


class Player:
    """Plays sequences of states of one subject. *on_blocked* is for operators that block the event loop."""

    def __init__(
        self, app: App, subject: Subject, world: World, *, on_blocked: Callable[[str], object] | None = None
    ) -> None:
        self.app = app
        self.subject = subject
        self.world = world
        self._on_blocked = on_blocked
        self.anonymous: set[str] = set()  # kinds whose objects have names that are never the same
        self.transitions = 0

    def play(
        self,
        states: Sequence[State],
        *,
        seed: int = 0,
        to_the_end: bool = True,
        perturbation: Perturbation = NONE,
    ) -> Play:
        """Return what happens in a sequence of states; another *seed* has other times, names, passwords and orders.

        *to_the_end* adds two quiet hours, unless there is a *perturbation*, and the deletion. Raises ConfigError for
        operators that do not start or that hang, and OutsideCallError for those that reach for the outside.
        """
        self.transitions += len(states)
        while True:  # again where a library was imported in it, which had not been routed
            performance = _Performance(self, states, seed=seed, to_the_end=to_the_end, perturbation=perturbation)
            with routed_libraries() as libraries:
                try:
                    deadline, refused = self._perform(performance)
                except ConfigError:
                    if libraries.are_whole:
                        raise
                    continue
            if libraries.are_whole:
                break
        if refused:
            raise OutsideCallError(f"{refused[0]}. {HOW_TO_FAKE}")
        if deadline.place is not None:
            raise ConfigError(_describe_hang(performance.result, deadline.place))
        return performance.result

    def _perform(self, performance: _Performance) -> tuple[Deadline, list[str]]:
        """Perform a play, and return its deadline, and what was refused in it."""
        seed, perturbation = performance.result.seed, performance.perturbation
        deadline = Deadline(_PATIENCE, on_blocked=functools.partial(self._end_blocked, performance.result))
        start = _START + datetime.timedelta(days=seed, seconds=seed * 7.5)
        order = perturbation.at if perturbation.fault == "order" else seed
        with (
            deterministic(order),
            serial_threads(),
            wall_starts_at(start),
            refuse_outside_calls() as refused,
            play_outside() as outside,
            _kept_logs(),
        ):
            try:
                clock = trio.testing.MockClock(autojump_threshold=0)
                trio.run(performance.run, self.app, self.world, deadline, outside, clock=clock)
            except (BaseExceptionGroup, TrioperatorError, SystemExit) as error:
                raise _find_cause(error) from None
        return deadline, refused

    def _end_blocked(self, play: Play, place: str | None) -> None:
        """Report where the event loop is blocked, or else which handlers are called meanwhile."""
        if self._on_blocked is not None:
            running = ", ".join(call.handler for call in play.calls if call.ended is None)
            self._on_blocked(f"at {place}" if place else f"while it calls {running or 'no handler'}")


@contextlib.contextmanager
def _kept_logs() -> Iterator[None]:
    """Keep the log of operators in the context to their runners, which record it; nobody sees it besides."""
    loggers, nobody = [logging.getLogger(name) for name in LOGGERS], logging.NullHandler()
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(nobody)  # without any handler, warnings would be printed
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(nobody)
            logger.propagate = propagate


def _describe_hang(play: Play, place: str) -> str:
    """Return that a play has not ended, with where it is and what was called most."""
    text = f"A play has not ended within {_PATIENCE:g} s"
    text += f": a handler is at {place}, and does not return." if place else "."
    counts = collections.Counter(call.handler for call in play.calls)
    most = ", ".join(f"{handler} {count} times" for handler, count in counts.most_common(3))
    return f"{text} Handlers were called in it: {most or 'none'}."


def _find_cause(error: BaseException) -> BaseException:
    """Return what ends the exploration: an interrupt, an error of the user's, or all as it is."""
    leaves = list(iterate_leaves(error))
    for wanted in (KeyboardInterrupt, ConfigError, TrioperatorError, SystemExit):
        for leaf in leaves:
            if isinstance(leaf, wanted):
                return _as_config_error(leaf)
    return leaves[0] if len(leaves) == 1 else error


def _as_config_error(error: BaseException) -> BaseException:
    """Return an error of the user's that ends all plays, as the operator cannot be explored."""
    if isinstance(error, SystemExit):
        return ConfigError(f"A handler ends the process: SystemExit({error.code!r}).")
    if isinstance(error, TrioperatorError) and not isinstance(error, ConfigError):
        return ConfigError(f"The operator fails: {error}")
    return error


class _Performance:
    """One play while it goes on."""

    def __init__(
        self,
        player: Player,
        states: Sequence[State],
        *,
        seed: int,
        to_the_end: bool,
        perturbation: Perturbation,
    ) -> None:
        self._player = player
        self._states = states
        self._to_the_end = to_the_end
        self.perturbation = perturbation
        self.result = Play(seed=seed)

    async def run(self, app: App, world: World, deadline: Deadline, outside: Outside) -> None:
        """Play from the start of the operator to its end."""
        result = self.result
        with trio.CancelScope() as scope, deadline.guard(scope):
            cluster = Cluster(clock=wall_now, seed=result.seed)
            async with contextlib.AsyncExitStack() as stack:
                if (kopf := find_kopf()) is not None:
                    await stack.enter_async_context(kopf.open_loop())
                stack.enter_context(routing_to(cluster.transport()))  # for files that send requests on import
                await _furnish(cluster, world)
                if world.controllers:
                    await stack.enter_async_context(cluster.open_controllers(*world.controllers))
                operator = await stack.enter_async_context(open_unchecked_runner(cluster))
                result.calls, result.writes = operator.calls, operator.writes
                stage = Stage(cluster, operator, app, subject=self._player.subject, world=world)
                stage.omissions.anonymous, stage.outside = self._player.anonymous, outside
                trouble = Trouble(stage, self._states, self.perturbation)
                await stage.start(trouble.plan)
                async with trouble.open():
                    await self._perform(stage, trouble)
                result.watched = sorted(stage.watches.heard)
                result.counts, result.outside_calls = outside.counts, outside.calls
            if any(call.failed or call.denied for call in operator.calls):
                operator.expect_failures()  # which the steps have
            result.problems = operator.problems

    async def _perform(self, stage: Stage, trouble: Trouble) -> None:
        result = self.result
        if result.seed:
            await trio.sleep(result.seed % 7 + 0.5)
        await stage.prepare()
        for index, state in enumerate(self._states):
            await trouble.before(index)
            step = await stage.change(state, then=functools.partial(trouble.after, index))
            (result.steps if step.rejected is None else result.rejected).append(step)
        if not result.steps:
            return
        await trouble.conclude(result.last)
        if self._to_the_end:
            count = len(self._states)
            if self.perturbation is NONE:
                result.hours = [await stage.wait(_HOUR), await stage.wait(_HOUR)]
            await trouble.before(count)
            release = await stage.delete(then=functools.partial(trouble.after, count))
            if release.rejected is None:
                result.release, result.leftovers = release, stage.list_leftovers()


async def _furnish(cluster: Cluster, world: World) -> None:
    """Create the kinds and objects of the world. Raises ConfigError for what the API server rejects."""
    for obj in (*world.definitions, *world.objects):
        try:
            await cluster.apply(obj)
        except ApiError as error:
            name = obj.get("metadata", {}).get("name")
            raise ConfigError(f"The API server rejects {obj.get('kind')} {name}: {error.message}") from error
