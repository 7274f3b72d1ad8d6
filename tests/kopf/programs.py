"""An operator as users of Kopf write it, and its objects."""

from __future__ import annotations

OPERATOR = """
import asyncio
import kopf
from kopf import Spec, on

@on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, logger: kopf.Logger, **_):
    await asyncio.sleep(0)
    memo.lock = asyncio.Lock()
    settings.process.ultimate_exiting_timeout = 5
    logger.info("Started.")

@on.cleanup()
async def clean(logger, **_):
    await asyncio.sleep(0)
    logger.info("Cleaned up.")

@on.probe()
async def probe(**_):
    await asyncio.sleep(0)
    return "probed"

@on.create("shapes")
async def create_fn(spec: Spec, memo, logger, **_):
    async with memo.lock:
        await asyncio.sleep(0)
    logger.info(f"Creating {spec.get('size')}.")
    asyncio.create_task(asyncio.sleep(1e6))  # it is cancelled in the end
    return {"message": "hello"}

@kopf.daemon("shapes")
def in_thread(stopped, logger, **_):
    logger.info("Sync daemon begins.")
    stopped.wait()
    logger.info("Sync daemon ends.")

@kopf.daemon("shapes", cancellation_timeout=1)
async def in_asyncio(logger, **_):
    try:
        await asyncio.Event().wait()
    finally:
        logger.info("Async daemon ends.")
"""
MANIFESTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shapes.conformance.dev}
spec:
  scope: Namespaced
  group: conformance.dev
  names: {kind: Shape, plural: shapes, singular: shape}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: conformance.dev/v1
kind: Shape
metadata: {name: s, namespace: default}
spec: {size: 7}
"""
