"""Admission control for the operator of the image, with a certificate that is mounted."""

import os
import pathlib

import trioperator

# Elsewhere than in the pod, for tests.
CERTIFICATES = pathlib.Path(os.environ.get("CERTIFICATES", "/certificates"))
PORT = int(os.environ.get("WEBHOOKS_PORT", "9443"))


@trioperator.on.startup()
async def configure(settings: trioperator.OperatorSettings) -> None:
    settings.admission.server = trioperator.WebhookServer(
        addr="0.0.0.0",
        port=PORT,
        certfile=CERTIFICATES / "tls.crt",
        pkeyfile=CERTIFICATES / "tls.key",
    )


@trioperator.on.validate("kopf.dev", "v1", "kopfexamples", operations=["CREATE", "UPDATE"])
async def check_field(spec: trioperator.Spec) -> None:
    if len(str(spec.get("field", ""))) > 100:
        raise trioperator.AdmissionError("The field must have 100 characters at most.", code=400)
