"""A Kubernetes API in process, for running, demonstrating and testing operators without a cluster.

:class:`Cluster` stores the objects and answers through an in-memory httpx transport; :func:`serve_cluster` serves it
on a port, :func:`open_cluster` persists its objects in a file. The package imports only ``trioperator._model`` and
``trioperator.errors``, and knows nothing about operators. See docs/embedded-cluster.md.
"""

from __future__ import annotations

from .cluster import Cluster
from .model.messages import RequestLog, RequestRecord
from .model.user import User
from .opening import open_cluster
from .server import serve_cluster
from .serving.kubeconfig import write_kubeconfig

__all__ = ["Cluster", "RequestLog", "RequestRecord", "User", "open_cluster", "serve_cluster", "write_kubeconfig"]
