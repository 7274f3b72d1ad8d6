"""The command ``trioperator new``: a project for an operator that works at once."""

from __future__ import annotations

import contextlib
import pathlib
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trioperator._logs import configure
from trioperator.cli.options import option, taking
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._tooling.scaffolding import ProjectOptions


class NewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator new``."""

    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the project, and of its folder.", show_default=False)
    ]
    kind: Annotated[str | None, option("--kind KIND", "Kind of the objects; by default, derived from the name.")] = None
    group: Annotated[str, option("--group DOMAIN", "API group of the kind.")] = "example.com"
    namespaced: Annotated[bool, option("--namespaced/--cluster-scoped", "Whether the objects are in namespaces.")] = (
        True
    )


@taking(NewOptions, "NEW")
def new(context: typer.Context, options: NewOptions) -> None:
    """Create a project for an operator, in a new folder.

    It has handlers, a kind, tests, an image and a deployment.
    """
    from trioperator._tooling.scaffolding import ProjectOptions
    from trioperator._tooling.scaffolding.project import derive_kind
    from trioperator.cli.failures import reporting_failures

    configure(quiet=True)
    name = options.name
    with reporting_failures():
        kind = options.kind or derive_kind(name)
        project = ProjectOptions(name=name, kind=kind, group=options.group, namespaced=options.namespaced)
        count = _write_project(pathlib.Path(name), project)
    typer.echo(
        f"Created the project {name}, with {count} files. Its README has the next steps:\n\n"
        f"    cd {name}\n    pip install -e '.[dev]'\n"
        "    trioperator check\n    pytest"
    )


def _write_project(root: pathlib.Path, options: ProjectOptions) -> int:
    """Write a project, and return the number of its files. Raises ConfigError if there is anything already."""
    from trioperator._tooling.deployment.files import write_files
    from trioperator._tooling.scaffolding import render_project

    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise ConfigError(f"{root} exists already, and is not an empty folder: use another name.")
    files = render_project(options)
    write_files(root, files)
    with contextlib.chdir(root):
        deployment = _render_deployment(options)
        write_files(pathlib.Path("deploy"), deployment)
    return len(files) + len(deployment)


def _render_deployment(options: ProjectOptions) -> dict[str, str]:
    """Return the files of the deployment, as ``trioperator manifests`` makes them from the handlers."""
    from trioperator._handling.declaring.registry import OperatorRegistry, set_default_registry
    from trioperator._tooling.deployment.base import make_base
    from trioperator._tooling.deployment.files import render
    from trioperator._tooling.deployment.options import DeploymentOptions
    from trioperator.cli.deployment import DeploymentRequest, load_parts
    from trioperator.cli.rbac import RbacOptions

    set_default_registry(OperatorRegistry())
    modules = (f"{options.package}.handlers",)
    account = (options.name, options.name)
    rbac = RbacOptions(modules=modules, standalone=True, name=options.name, account=account)
    deployment = DeploymentOptions(name=options.name, namespace=options.name, image=options.name, modules=modules)
    request = DeploymentRequest(rbac=rbac, deployment=deployment)
    return {name: render(objects) for name, objects in make_base(deployment, load_parts(request)).items()}
