"""Admission control for the operator of the image."""

import trioperator


@trioperator.on.startup()
async def configure(settings: trioperator.OperatorSettings) -> None:
    settings.admission.server = trioperator.WebhookAutoServer()


@trioperator.on.validate("kopf.dev", "v1", "kopfexamples", operations=["CREATE", "UPDATE"])
async def check_field(spec: trioperator.Spec) -> None:
    if len(str(spec.get("field", ""))) > 100:
        raise trioperator.AdmissionError("The field must have 100 characters at most.", code=400)
