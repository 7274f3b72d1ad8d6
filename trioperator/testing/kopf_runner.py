"""The command in a thread during blocking tests, as Kopf's tests run it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator.cli import CLIControls
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from typer.testing import Result

_NOT_ENDED: Final = "The operator has not ended yet: this is known after the `with` block."


class KopfRunner:
    """Run the command in a thread while the block goes on, as Kopf's class of this name.

    ::

        with KopfRunner(["run", "-A", "--embedded", "--verbose", "app.py"]) as runner:
            ...
        assert runner.exit_code == 0
        assert "And here we are!" in runner.stdout

    The block begins when the operator is ready, or has ended. At the end of the block, the operator is stopped. *args*
    and *kwargs* are for ``CliRunner.invoke()``.

    - *timeout*: seconds to wait for the operator to stop; None: as long as it takes
    - *reraise*: raise RuntimeError after the block if the operator has failed, unless the block has raised
    - *registry*: registry of the handlers, in place of the default one
    - *settings*: initial settings of the operator

    The results, such as ``exit_code``, are available after the block; until then, they raise RuntimeError. Raises
    TimeoutError if the operator does not stop in time. Use one runner at a time: it captures the output of the process.
    For async tests, which need no threads, see the fixture ``operator``.
    """

    def __init__(
        self,
        *args: Any,
        reraise: bool = True,
        timeout: float | None = None,
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        **kwargs: Any,
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._reraise = reraise
        self._timeout = timeout
        self._ready = threading.Event()
        self._stop = threading.Event()
        controls = CLIControls(ready_flag=self._ready, stop_flag=self._stop, registry=registry, settings=settings)
        self._controls = self._complete(controls)
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)
        self._result: Result | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(self._timeout)
        if error is not None:
            return
        if self._thread.is_alive():
            raise TimeoutError(f"The operator has not stopped within {self._timeout:g} seconds.")
        if self._reraise and self.exit_code != 0:
            text = f"The operator has ended with the exit code {self.exit_code}:\n{self.output}"
            raise RuntimeError(text) from self.exception

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return self._ended.exit_code

    @property
    def exception(self) -> BaseException | None:
        """The exception of the command, other than its exit: None if it has reported its failure itself."""
        error: BaseException | None = self._ended.exception
        return None if isinstance(error, SystemExit) else error

    @property
    def exc_info(self) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
        """The same, with its type and traceback."""
        error = self.exception
        return None if error is None else (type(error), error, error.__traceback__)

    @property
    def output(self) -> str:
        """The output to stdout and stderr, logs included, in order."""
        return self._ended.output

    @property
    def stdout(self) -> str:
        """The same as ``output``: tests that were written for Kopf look for log messages here."""
        return self.output

    @property
    def stdout_bytes(self) -> bytes:
        """The same, encoded."""
        return self.output.encode()

    @property
    def stderr(self) -> str:
        """The output to stderr, such as logs."""
        return self._ended.stderr

    @property
    def stderr_bytes(self) -> bytes:
        """The same, encoded."""
        return self.stderr.encode()

    @property
    def _ended(self) -> Result:
        if self._result is None:
            raise RuntimeError(_NOT_ENDED)
        return self._result

    def _complete(self, controls: CLIControls) -> CLIControls:
        return controls

    def _prepared(self, args: Sequence[str]) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _run(self) -> None:
        """Run the command, in the thread, and restore what it changes in the process."""
        from typer.testing import CliRunner

        from trioperator.cli.root import app

        registry, root = get_default_registry(), logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            with self._prepared(self._args[0] if self._args else ()):
                self._result = CliRunner().invoke(app, *self._args, obj=self._controls, **self._kwargs)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            set_default_registry(registry)
            self._ready.set()
