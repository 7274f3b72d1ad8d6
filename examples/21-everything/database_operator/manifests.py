"""The manifests of what belongs to a database: nothing but functions of its spec."""

import secrets
from typing import Any

from database_operator.kinds import DatabaseSpec

#: The labels of the operator's own Secrets, so that no others are kept in memory.
MANAGED = {"app.kubernetes.io/managed-by": "database-operator"}


def make_service(name: str) -> dict[str, Any]:
    spec = {"clusterIP": "None", "selector": {"database": name}, "ports": [{"port": 5432}]}
    return {"apiVersion": "v1", "kind": "Service", "spec": spec}


def make_password(name: str) -> dict[str, Any]:
    """Return a Secret with a new password. Only the first one is used: see the strategy "on_delete"."""
    data = {"password": secrets.token_urlsafe(24)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-password"}, "stringData": data}


def make_stateful_set(name: str, spec: DatabaseSpec, digest: str | None) -> dict[str, Any]:
    """Return the StatefulSet. The *digest* of the settings is in its pods, so that these are replaced with them."""
    labels = {"database": name}
    container = make_container(spec, name)
    container["volumeMounts"] = [{"name": "data", "mountPath": "/var/lib/postgresql"}]
    pod: dict[str, Any] = {"containers": [container]}
    annotations = {}
    if spec.settings is not None:
        annotations = {"db.example.com/settings": digest}
        container["volumeMounts"].append({"name": "settings", "mountPath": "/etc/postgresql"})
        pod["volumes"] = [{"name": "settings", "secret": {"secretName": spec.settings}}]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": str(spec.storage)}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "replicas": spec.replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labels}, "spec": claim}],
        },
    }


def make_backup(name: str, job: str, spec: DatabaseSpec) -> dict[str, Any]:
    container = {**make_container(spec, name), "command": ["pg_dumpall", f"--host={name}", "--username=postgres"]}
    pod = {"containers": [container], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job, "labels": {"backup-of": name}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def make_container(spec: DatabaseSpec, name: str) -> dict[str, Any]:
    password = {"secretKeyRef": {"name": f"{name}-password", "key": "password"}}
    env = [{"name": variable, "valueFrom": password} for variable in ("POSTGRES_PASSWORD", "PGPASSWORD")]
    return {"name": "postgres", "image": f"postgres:{spec.version or 'latest'}", "env": env}
