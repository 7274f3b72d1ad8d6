"""The command ``trioperator why``: what has happened to an object lately, as the operator's ledger says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trioperator.cli.acting import echo, escape_json
from trioperator.cli.options import option, taking
from trioperator.cli.top import DEFAULT_URL, open_view

if TYPE_CHECKING:
    import httpx


class WhyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator why``."""

    object: Annotated[
        str, typer.Argument(metavar="KIND/NAME", help="The object, such as database/orders, or KIND/NAMESPACE/NAME.")
    ]
    namespace: Annotated[str, option("-n --namespace NAME", "Its namespace; by default, any.")] = ""
    url: Annotated[str, option("--url URL", "The operator's --live-view URL.")] = DEFAULT_URL
    token: Annotated[str | None, option("--token TOKEN", "The operator's --live-view-token.")] = None
    json: Annotated[bool, option("--json", "Print it as JSON.")] = False


@taking(WhyOptions, "WHY")
def why(context: typer.Context, options: WhyOptions) -> None:
    """Show why an object was reconciled lately, what ran for it, and which requests followed."""
    kind, _, rest = options.object.partition("/")
    place, _, name = rest.rpartition("/")
    if not (kind and name) or (place and options.namespace not in ("", place)):
        raise typer.BadParameter("name the object as KIND/NAME or KIND/NAMESPACE/NAME, such as database/orders.")
    with open_view(options.url, options.token) as view:
        response = view.get("why", params={"kind": kind, "namespace": place or options.namespace, "name": name})
        if response.status_code == 404:
            echo(response.text.strip(), err=True)
            raise typer.Exit(1)
        if options.json:
            typer.echo(escape_json(response.text.strip()))
        else:
            echo(_find_text(response))


def _find_text(response: httpx.Response) -> str:
    found: dict[str, Any] = response.json()
    return "\n".join(found["text"])
