"""Documents that are not objects: versions, health, discovery and OpenAPI, by path."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, Final

from .model.errors import method_not_allowed, unknown_resource
from .model.kinds import Catalog
from .model.messages import Request, Response
from .reading import discovery, health, openapi, openapi_protobuf
from .routing import PageNotFoundError, Router

_JSON: Final = frozenset({"*/*", "application/*", "application/json"})


def read_document(catalog: Catalog, router: Router, request: Request) -> Response:
    """Return the document at the path: versions, health, discovery or OpenAPI."""
    if request.method not in {"GET", "HEAD"}:
        raise method_not_allowed()
    match request.path.strip("/").split("/"):
        case [""]:
            return Response.of(discovery.root_paths(catalog))
        case ["version"]:
            return Response.of(discovery.VERSION)
        case ["metrics"]:
            return _plain(f'kubernetes_build_info{{git_version="{discovery.VERSION["gitVersion"]}"}} 1\n')
        case ["healthz" | "livez" | "readyz" as endpoint]:
            return _plain(health.health_of(endpoint, request.query))
        case ["healthz" | "livez" | "readyz" as endpoint, name] if health.is_check(endpoint, name):
            return _plain("ok")
        case ["api" | "apis", *_] as path:
            return _read_discovery(catalog, router, request, path)
        case ["openapi", *path]:
            return _read_openapi(catalog, request, path)
    raise PageNotFoundError


def _read_discovery(catalog: Catalog, router: Router, request: Request, path: list[str]) -> Response:
    match path:
        case ["api" | "apis" as root] if "apidiscovery.k8s.io" in request.accept and "v=v2;" in f"{request.accept};":
            return _aggregated_discovery(catalog, request, core=root == "api")
        case ["api"]:
            return Response.of(discovery.api_versions("127.0.0.1:443"))
        case ["apis"]:
            return Response.of(discovery.api_groups(catalog))
        case ["api", "v1"]:
            return Response.of(discovery.api_resources(catalog, "", "v1"))
        case ["apis", group] if catalog.versions(group):
            return Response.of(discovery.api_group(catalog, group))
        case ["apis", group, version] if catalog.kinds(group, version):
            return Response.of(discovery.api_resources(catalog, group, version))
        case ["api", _]:
            raise unknown_resource()
        case ["apis", group, version] if catalog.versions(group):
            raise router.no_such_path(group, version)
    raise PageNotFoundError


def _plain(text: str) -> Response:
    headers = [("X-Content-Type-Options", "nosniff")]
    return Response(200, text.encode(), "text/plain; charset=utf-8", headers)


def _aggregated_discovery(catalog: Catalog, request: Request, *, core: bool) -> Response:
    """Return the document with its ETag, or only 304 if the client has this version of it."""
    response = Response.of(discovery.aggregated(catalog, core=core))
    assert isinstance(response.body, bytes)
    etag = f'"{hashlib.sha512(response.body).hexdigest().upper()}"'
    if request.if_none_match == etag:
        response = Response(304, b"")
    response.headers = [("ETag", etag), ("Vary", "Accept"), ("Cache-Control", "public")]
    response.content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    return response


def _read_openapi(catalog: Catalog, request: Request, path: Sequence[str]) -> Response:
    match path:
        case ["v2"]:
            return _as_accepted(request, openapi.version_2(catalog), openapi_protobuf.MEDIA_TYPES)
        case ["v3"]:
            return Response.of(openapi.index(catalog))
        case ["v3", "api", version]:
            return _as_accepted(request, openapi.version_3(catalog, "", version))
        case ["v3", "apis", group, version]:
            return _as_accepted(request, openapi.version_3(catalog, group, version))
    raise PageNotFoundError


def _as_accepted(request: Request, document: dict[str, Any], protobuf: Collection[str] = ()) -> Response:
    """Return the document in the first form that the client accepts, or 406."""
    for clause in (request.accept or "*/*").split(","):
        media_type = clause.partition(";")[0].strip()
        if media_type in _JSON:
            return Response.of(document)
        if media_type in protobuf:
            return Response(200, openapi_protobuf.encode_document(document), openapi_protobuf.MEDIA_TYPES[0])
    return Response(406, b"", "text/plain; charset=utf-8")
