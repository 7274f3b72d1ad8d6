"""The command ``trioperator why``: what has happened to an object lately, as the operator's ledger says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from trioperator.cli.options import declare_option
from trioperator.cli.top import DEFAULT_URL, open_view, to_printable

if TYPE_CHECKING:
    import httpx

Object: TypeAlias = Annotated[
    str, typer.Argument(metavar="KIND/NAME", help="The object, such as database/orders, or KIND/NAMESPACE/NAME.")
]
Namespace: TypeAlias = Annotated[
    str, declare_option("WHY", "-n", "--namespace", env="NAMESPACE", metavar="NAME", help="Its namespace.")
]
Url: TypeAlias = Annotated[
    str, declare_option("WHY", "--url", env="URL", metavar="URL", help="The operator's URL of --live-view.")
]
Token: TypeAlias = Annotated[
    str | None, declare_option("WHY", "--token", env="TOKEN", metavar="TOKEN", help="The token of --live-view-token.")
]
AsJson: TypeAlias = Annotated[bool, declare_option("WHY", "--json", env="JSON", help="Print it as JSON.")]


def why(
    object: Object, namespace: Namespace = "", url: Url = DEFAULT_URL, token: Token = None, json: AsJson = False
) -> None:
    """Show why an object was reconciled lately, what ran for it, and which requests followed."""
    kind, _, rest = object.partition("/")
    place, _, name = rest.rpartition("/")
    if not (kind and name) or (place and namespace not in ("", place)):
        raise typer.BadParameter("name the object as KIND/NAME or KIND/NAMESPACE/NAME, such as database/orders")
    with open_view(url, token) as view:
        response = view.get("why", params={"kind": kind, "namespace": place or namespace, "name": name})
        if response.status_code == 404:
            typer.echo(response.text.strip(), err=True)
            raise typer.Exit(1)
        if json:
            typer.echo(response.text.strip())
        else:
            typer.echo(_find_text(response))


def _find_text(response: httpx.Response) -> str:
    found: dict[str, Any] = response.json()
    return "\n".join(to_printable(line) for line in found["text"])
