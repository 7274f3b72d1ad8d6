"""Where the operators of others are: checkouts in a folder, or clones. Nothing of them is in this repository."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import subprocess
from collections.abc import Iterable

#: A folder with checkouts or bare repositories, as ``OWNER+NAME``, ``OWNER/NAME`` or ``NAME``.
VARIABLE = "WORLD_REPOSITORIES"
_SECONDS = 120
_HOST = "https://github.com"


class Missing(Exception):
    """Raised when a repository is neither in the folder nor can be cloned, or a package is not installed."""


def find_checkout(repository: str, scratch: pathlib.Path) -> pathlib.Path:
    """Return a new checkout of ``OWNER/NAME``, or of ``OWNER/NAME@COMMIT``, in *scratch*: from a folder or GitHub.

    A commit is the name of a tag, or a whole hash. Raises Missing, which says what to provide.
    """
    repository, _, commit = repository.partition("@")
    target = scratch / repository.replace("/", "+")
    source = _find_repository(repository)
    if source is None and os.environ.get(VARIABLE):
        raise Missing(f"there is no {repository.replace('/', '+')} in ${VARIABLE}")
    try:
        if source is None:
            _git("init", "--quiet", str(target))
            _git("-C", str(target), "fetch", "--quiet", "--depth=1", f"{_HOST}/{repository}", commit or "HEAD")
            _git("-C", str(target), "checkout", "--quiet", "FETCH_HEAD")
        else:
            _git("clone", "--quiet", "--shared", "--no-checkout", str(source), str(target))
            _fill(target, commit or "HEAD")
    except (subprocess.SubprocessError, OSError) as error:
        what = getattr(error, "stderr", None) or error
        raise Missing(f"it cannot be cloned ({str(what).strip()}): put a checkout into ${VARIABLE}") from error
    return target


def find_missing(repositories: Iterable[str | None]) -> list[str]:
    """Return which of the repositories are not in the folder, if there is one: these will not be cloned."""
    if not os.environ.get(VARIABLE):
        return []
    names = {repository.partition("@")[0] for repository in repositories if repository is not None}
    return sorted(name for name in names if _find_repository(name) is None)


def _fill(checkout: pathlib.Path, commit: str) -> None:
    """Check out the files of a commit, but those that its source lacks: mirrors may leave out large ones."""
    with contextlib.suppress(subprocess.CalledProcessError):
        _git("-C", str(checkout), "checkout", "--quiet", "--force", commit)
    if len(list(checkout.iterdir())) == 1:
        raise OSError("none of its files can be checked out")


def _git(*args: str) -> str:
    found = subprocess.run(["git", *args], check=True, capture_output=True, text=True, timeout=_SECONDS)
    return found.stdout.strip()


def _find_repository(repository: str) -> pathlib.Path | None:
    """Return a Git repository in the folder of the variable: a checkout, a bare one, or a folder with one of these."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    names = (repository.replace("/", "+"), repository, repository.rpartition("/")[2])
    for name in names:
        for path in (pathlib.Path(folder, name), pathlib.Path(folder, name, "repo")):
            if (path / ".git").exists() or (path / "objects").is_dir():
                return path.resolve()
    return None


def read_commit(checkout: pathlib.Path) -> str:
    """Return the commit of a checkout, shortened."""
    return _git("-C", str(checkout), "log", "-1", "--format=%h %as")


def find_version(distribution: str) -> str:
    """Return the version of an operator that is installed as a package. Raises Missing if it is not."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise Missing(f"install {distribution}, as nox does") from error
