"""Decoding of request bodies, patches and write options.

Decoded objects have checked types, and are in the stored form: see
:func:`~trioperator.apiserver.builtin.strategies.shape`. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ..builtin.strategies import shape
from ..custom.embedded import EmbeddedError
from ..model.errors import bad_request, invalid, unsupported_media_type
from ..model.json_text import decode_json
from ..model.kinds import Kind, kind_of
from ..model.messages import Request
from ..model.nesting import size_problem
from ..model.quoting import go_text, json_name, quote
from ..model.status_causes import StatusCause, first_causes, invalid_value
from ..model.unmarshal import UnmarshalError, unmarshal, unmarshal_metadata
from ..model.user import ADMIN, User
from . import patching
from .duplicates import duplicate_fields
from .yaml import YamlError, load_yaml

_MANAGER_LIMIT: Final = 128  # bytes
_UNKNOWN_LIMIT: Final = 100  # as on the real server
_SUMMARY_SIZE: Final = 30  # bytes of a body that cannot be decoded
_OPERATION_FIELDS: Final = frozenset({"op", "path", "from", "value"})
_BODY_TYPES: Final = ("application/json", "application/yaml")


@dataclasses.dataclass(slots=True, kw_only=True)
class WriteOptions:
    """Query parameters of a write, and the warnings for its response."""

    dry_run: bool = False
    manager: str = ""  # the field manager
    field_validation: str = "Warn"
    force: bool = False
    problems: list[str] = dataclasses.field(default_factory=list)  # of the body, such as duplicate fields
    user: User = ADMIN
    sent: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # the options as the client sent them
    warnings: list[str] = dataclasses.field(default_factory=list)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)  # audit annotations of webhooks


def read_write_options(verb: str, request: Request) -> WriteOptions:
    """Parse the options of a write from its query and headers. Raises ApiError if they are invalid."""
    query = request.query
    is_apply = verb == "patch" and request.media_type == patching.APPLY
    title = f"{verb.capitalize()}Options"
    dry_run, manager = query.get("dryRun", ""), query.get("fieldManager", "")
    if dry_run not in {"", "All"}:
        text = f'Unsupported value: ["{dry_run}"]: supported values: "All"'
        raise invalid(title, "meta.k8s.io", "", [StatusCause("dryRun", text, "FieldValueNotSupported")])
    causes = first_causes(_check_manager(manager, is_required=is_apply))
    if verb == "patch" and not is_apply and "force" in query:
        text = "Forbidden: may not be specified for non-apply patch"
        causes.insert(0, StatusCause("force", text, "FieldValueForbidden"))
    if causes:
        raise invalid(title, "meta.k8s.io", "", causes)
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in {"Ignore", "Warn", "Strict"}:
        text = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        raise invalid(title, "meta.k8s.io", "", [StatusCause("fieldValidation", text, "FieldValueNotSupported")])
    sent: dict[str, Any] = {"dryRun": [dry_run]} if dry_run else {}
    sent |= {key: query[key] for key in ("fieldManager", "fieldValidation") if query.get(key)}
    return WriteOptions(
        sent=sent,
        warnings=request.warnings,
        annotations=request.annotations,
        dry_run=bool(dry_run),
        manager=manager or _manager_of(request.user_agent),
        field_validation=validation,
        force=query.get("force", "").lower() in {"1", "t", "true"},
        user=request.user,
    )


def _check_manager(manager: str, *, is_required: bool) -> Iterable[StatusCause]:
    if is_required and not manager:
        yield StatusCause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
    if len(manager.encode()) > _MANAGER_LIMIT:
        text = f"Too long: may not be more than {_MANAGER_LIMIT} bytes"
        yield StatusCause("fieldManager", text, "FieldValueTooLong")
    if not manager.isprintable():
        at = 0
        for letter in manager:
            if not letter.isprintable():
                text = f"invalid character U+{ord(letter):04X} (at position {at})"
                yield invalid_value("fieldManager", manager, text)
            at += len(letter.encode())


def _manager_of(user_agent: str) -> str:
    """Return the default field manager of a client: its name in the User-Agent header."""
    name = user_agent.partition("/")[0]
    if name.isascii() and name.isprintable() and len(name) <= _MANAGER_LIMIT:
        return name
    text = "".join(letter for letter in name if letter.isprintable()).encode()[:_MANAGER_LIMIT]
    return text.decode(errors="ignore")


def decode_body(kind: Kind, request: Request, options: WriteOptions | None = None) -> Any:
    """Decode the object in the body, JSON or YAML; add its duplicate fields to the problems of the options."""
    media = request.media_type
    if media not in {"", *_BODY_TYPES}:
        raise unsupported_media_type(_BODY_TYPES)
    try:
        if media == "application/yaml":
            sent, problems = load_yaml(request.body)
            if problems and options is not None and options.field_validation == "Strict":
                problems = ["\n  ".join(["yaml: unmarshal errors:", *problems])]
        else:
            sent = decode_json(request.body, is_limited=True)
            problems = _duplicates(request.body, sent, options)
        if options is not None:
            options.problems += problems
        return sent
    except YamlError as error:
        problem = str(error)
    except ValueError as error:
        problem = f"couldn't get version/kind; json parse error: {error}"
    text = f"the object provided is unrecognized (must be of type {kind.kind}): {problem} ({_summary(request.body)})"
    raise bad_request(text)


def _summary(body: bytes) -> str:
    """Return the start of the body as formatted in messages."""
    if not body:
        return "<empty>"
    start = body[:_SUMMARY_SIZE]
    text = start.decode(errors="replace") if body.startswith(b"{") else start.hex()
    return f"{text} ..." if len(body) > len(start) else text


def _duplicates(body: bytes, sent: Any, options: WriteOptions | None, prefix: str = "") -> list[str]:
    if options is None or options.field_validation == "Ignore":
        return []
    return [f"{prefix}duplicate field {quote(path)}" for path in duplicate_fields(body, sent)]


def decode_patch(body: bytes, patch_type: str, options: WriteOptions) -> Any:
    """Decode a patch; add its duplicate fields to the problems of the options."""
    try:
        patch = decode_json(body, is_limited=True)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if patch_type != patching.JSON and not isinstance(patch, dict):
        text = f"json: cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: {text}")
    if too_large := size_problem(patch):
        raise bad_request(f"error decoding patch: {too_large}")
    options.problems += _duplicates(body, patch, options, "json patch " if patch_type == patching.JSON else "")
    if patch_type == patching.JSON and isinstance(patch, list):
        operations = [(at, item) for at, item in enumerate(patch) if isinstance(item, dict)]
        found = [f"[{at}].{field}" for at, item in operations for field in item if field not in _OPERATION_FIELDS]
        options.problems += [f"json patch unknown field {quote(path)}" for path in found]
    return patch


def decode_configuration(body: bytes, options: WriteOptions) -> dict[str, Any]:
    """Decode the configuration of a server-side apply, JSON or YAML."""
    try:
        configuration, problems = load_yaml(body)
    except YamlError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if configuration is not None and not isinstance(configuration, dict):
        text = f"json: cannot unmarshal {json_name(configuration)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {text}")
    if too_large := size_problem(configuration):
        raise bad_request(too_large)
    if problems and options.field_validation == "Strict":
        text = "\n  ".join(["yaml: unmarshal errors:", *problems])
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {text}")
    if problems and options.field_validation == "Warn":
        options.warnings.extend(problems)
    return configuration or {}


def _type_error(value: Any) -> str:
    if value is None:
        return "Object 'Kind' is missing in 'null'"
    return f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_name(value)} into Go value"


def decode_object(
    kind: Kind, sent: Any, options: WriteOptions, *, patched: bool = False, merged: Any = None
) -> dict[str, Any]:
    """Return the stored form of an object from a client. Raises ApiError if it is invalid.

    Errors of a *patched* object show its JSON; errors of a strategic merge patch show the patch itself, *merged*.
    """
    if not isinstance(sent, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {_type_error(sent)}")
    if too_large := size_problem(sent):
        raise bad_request(too_large)
    _check_type(kind, sent, patched=patched)
    unknown: list[str] = []
    problem: str | None = None
    read: Mapping[str, Any] = sent
    try:
        read = unmarshal(kind, sent, unknown) if kind.custom is None else _read_metadata(kind, sent, unknown)
    except UnmarshalError as error:
        problem = str(error) if merged is None else error.converted()
    if problem is None:
        try:
            obj = shape(kind, read, unknown)
            problem = _check_unknown(unknown, options, sent if kind.custom is None else None)
        except EmbeddedError as error:
            problem = str(error)
    if problem is None:
        if kind.custom is None and _metadata_of(sent).get("managedFields") == []:
            obj["metadata"]["managedFields"] = []  # resets the managers; an absent list does not
        return obj
    if not patched:
        raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problem}')
    shown = msgspec.json.encode(sent).decode() if merged is None else go_text(merged)
    raise invalid("", "", "", [invalid_value("patch", shown, problem)])


def find_unconvertible(kind: Kind, sent: Mapping[str, Any]) -> str | None:
    """Return why the values of a built-in object cannot be converted to the types of its fields; None if they can."""
    try:
        if kind.custom is None:
            unmarshal(kind, sent, [])
    except UnmarshalError as error:
        return error.converted()
    return None


def _check_unknown(fields: list[str], options: WriteOptions, builtin: Mapping[str, Any] | None) -> str | None:
    """Return the error for unknown and duplicate fields if validation is strict; otherwise warn of them.

    Those of a *builtin* object are in the order of the object, of others the duplicate ones come first.
    """
    skipped = {f"duplicate field {quote(field)}" for field in fields} if builtin is not None else ()
    texts = [text for text in options.problems if text not in skipped]
    texts += [f"unknown field {quote(field)}" for field in fields[:_UNKNOWN_LIMIT]]
    if builtin is not None and fields and len(texts) > len(fields):
        order = {quote(path): at for at, path in enumerate(_paths(builtin))}
        texts.sort(key=lambda text: order.get(text.partition(" field ")[2], len(order)))
    if texts and options.field_validation == "Strict":
        return f"strict decoding error: {', '.join(texts)}"
    if options.field_validation == "Warn":
        options.warnings.extend(texts)
    return None


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields below the value, in their order."""
    if isinstance(value, dict):
        for name, item in value.items():
            below = f"{path}.{name}" if path else name
            yield below
            yield from _paths(item, below)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _paths(item, f"{path}[{at}]")


def _metadata_of(sent: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = sent.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _read_metadata(kind: Kind, sent: Mapping[str, Any], unknown: list[str]) -> Mapping[str, Any]:
    """Return a custom object with its metadata decoded. Raises UnmarshalError."""
    meta = sent.get("metadata")
    if meta is None:
        return sent
    if not isinstance(meta, dict):
        found = json_name(meta)
        text = f"json: cannot unmarshal {found} into Go struct field {kind.kind}.metadata of type v1.ObjectMeta"
        raise UnmarshalError(text)
    return {**sent, "metadata": unmarshal_metadata(meta, unknown)}


def _check_type(kind: Kind, sent: Mapping[str, Any], *, patched: bool) -> None:
    api_version, name = kind_of(sent)
    if kind.custom is None:
        if api_version in {"", kind.api_version} and name in {"", kind.kind}:
            return
        shown, version = name or kind.kind, (api_version or kind.api_version).rpartition("/")[2]
        reason = f'no kind "{shown}" is registered for version "{api_version or kind.api_version}"'
        raise bad_request(f'{shown} in version "{version}" cannot be handled as a {kind.kind}: {reason}')
    if not name:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing"
        )
    if api_version != kind.api_version and not patched:
        expected = f"({api_version}) does not match the expected API version ({kind.api_version})"
        raise bad_request(f"the API version in the data {expected}")
    own = str((sent.get("metadata") or {}).get("name") or "") if isinstance(sent.get("metadata"), dict) else ""
    if api_version != kind.api_version:
        cause = StatusCause("apiVersion", f'Invalid value: "{api_version}": must be {kind.api_version}')
        raise invalid(name, kind.group, own, [cause])
    if name != kind.kind:
        raise invalid(name, kind.group, own, [StatusCause("kind", f'Invalid value: "{name}": must be {kind.kind}')])
