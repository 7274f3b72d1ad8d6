"""How to reach a webhook, as its ``clientConfig`` says. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Address and CA bundle of a webhook."""

    url: str = ""
    service: str = ""  # "namespace/name"
    path: str = ""  # of the URL of a Service
    port: int = 443
    ca_bundle: str = ""  # certificates in PEM, in base64

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ClientConfig:
        """Parse the ``clientConfig`` of a webhook."""
        service = config.get("service")
        ca_bundle = str(config.get("caBundle") or "")
        if not service:
            return cls(url=str(config.get("url") or ""), ca_bundle=ca_bundle)
        return cls(
            service=f"{service.get('namespace') or ''}/{service.get('name') or ''}",
            path=str(service.get("path") or ""),
            port=int(service.get("port") or 443),
            ca_bundle=ca_bundle,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Conversion webhook of a definition, and the versions of ``ConversionReview`` that it accepts."""

    client: ClientConfig
    versions: tuple[str, ...]

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Conversion | None:
        """Parse the ``spec.conversion`` of a definition; return None for the strategy ``None``."""
        if spec.get("strategy") != "Webhook":
            return None
        webhook = spec["webhook"]
        return cls(
            client=ClientConfig.of(webhook["clientConfig"]),
            versions=tuple(webhook.get("conversionReviewVersions") or ()),
        )
