"""The command ``trioperator new``: a project for an operator that works at once."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import declare_option
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._tooling.scaffolding import ProjectOptions

_option: Final = functools.partial(declare_option, "NEW")

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the project, and of its folder.", show_default=False)
]
Kind: TypeAlias = Annotated[
    str | None, _option("--kind", env="KIND", metavar="KIND", help="Kind of the objects; by default, after the name.")
]
Group: TypeAlias = Annotated[str, _option("--group", env="GROUP", metavar="DOMAIN", help="API group of the kind.")]
Namespaced: TypeAlias = Annotated[
    bool, _option("--namespaced/--cluster-scoped", env="NAMESPACED", help="Whether the objects are in namespaces.")
]


def new(name: Name, kind: Kind = None, group: Group = "example.com", namespaced: Namespaced = True) -> None:
    """Create a project for an operator, in a new folder.

    It has handlers, a kind, tests, an image and a deployment.
    """
    from trioperator._tooling.scaffolding import ProjectOptions
    from trioperator._tooling.scaffolding.project import derive_kind
    from trioperator.cli.failures import report_failure

    configure(quiet=True)
    try:
        options = ProjectOptions(name=name, kind=kind or derive_kind(name), group=group, namespaced=namespaced)
        count = _write_project(pathlib.Path(name), options)
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None
    typer.echo(
        f"Made the project {name}, with {count} files. Its README has the next steps:\n\n"
        f"    cd {name}\n    pip install -e '.[dev]'\n"
        "    trioperator check\n    pytest"
    )


def _write_project(root: pathlib.Path, options: ProjectOptions) -> int:
    """Write a project, and return the number of its files. Raises ConfigError if there is anything already."""
    from trioperator._tooling.deployment.files import write_files
    from trioperator._tooling.scaffolding import render_project

    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise ConfigError(f"{root} exists already, and is no empty folder: use another name.")
    files = render_project(options)
    write_files(root, files)
    with contextlib.chdir(root):
        deployment = _render_deployment(options)
        write_files(pathlib.Path("deploy"), deployment)
    return len(files) + len(deployment)


def _render_deployment(options: ProjectOptions) -> dict[str, str]:
    """Return the files of the deployment, which the command manifests makes from the handlers."""
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
