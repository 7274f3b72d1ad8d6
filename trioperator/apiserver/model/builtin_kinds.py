"""The built-in kinds as the real API server serves them: names, scopes, short names, categories, subresources.

:mod:`.kinds` parses the table. Each line is a resource: its plural name, kind, traits, short names and categories. The
traits: ``N`` namespaced or ``C`` cluster-scoped, ``s`` with a status subresource, ``r`` with a scale subresource,
``t`` with a token subresource, ``e`` with the subresources of Pods (binding, eviction and log), ``a`` with an approval
subresource, ``g`` with ``metadata.generation``, ``u`` if updates require a resource version, ``c`` if an update
creates a missing object, ``d`` if a deletion returns the deleted object, ``v`` for reviews, which are answered and
not stored, ``l`` for what can only be read.
"""

from __future__ import annotations

from typing import Final

DEFAULT_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
COMPONENTS: Final = ("controller-manager", "etcd-0", "scheduler")  # with a ComponentStatus
IMMORTAL_NAMESPACES: Final = frozenset({"default", "kube-public", "kube-system"})

BUILTIN_KINDS: Final = """
v1
  componentstatuses ComponentStatus Cl cs -
  configmaps ConfigMap N cm -
  endpoints Endpoints Nc ep -
  events Event Nc ev -
  limitranges LimitRange Nc limits -
  namespaces Namespace Cs ns -
  nodes Node Cs no -
  persistentvolumeclaims PersistentVolumeClaim Nsd pvc -
  persistentvolumes PersistentVolume Csd pv -
  pods Pod Nsegd po all
  podtemplates PodTemplate Ngd - -
  replicationcontrollers ReplicationController Nsrg rc all
  resourcequotas ResourceQuota Nsd quota -
  secrets Secret N - -
  serviceaccounts ServiceAccount Ndt sa -
  services Service Nsdc svc all
apiregistration.k8s.io/v1
  apiservices APIService Csu - api-extensions
apps/v1
  controllerrevisions ControllerRevision N - -
  daemonsets DaemonSet Nsg ds all
  deployments Deployment Nsrg deploy all
  replicasets ReplicaSet Nsrg rs all
  statefulsets StatefulSet Nsrg sts all
events.k8s.io/v1
  events Event Nc ev -
authentication.k8s.io/v1
  selfsubjectreviews SelfSubjectReview Cv - -
  tokenreviews TokenReview Cv - -
authorization.k8s.io/v1
  localsubjectaccessreviews LocalSubjectAccessReview Nv - -
  selfsubjectaccessreviews SelfSubjectAccessReview Cv - -
  selfsubjectrulesreviews SelfSubjectRulesReview Cv - -
  subjectaccessreviews SubjectAccessReview Cv - -
autoscaling/v2
  horizontalpodautoscalers HorizontalPodAutoscaler Ns hpa all
autoscaling/v1
  horizontalpodautoscalers HorizontalPodAutoscaler Ns hpa all
batch/v1
  cronjobs CronJob Nsg cj all
  jobs Job Nsg - all
certificates.k8s.io/v1
  certificatesigningrequests CertificateSigningRequest Csa csr -
networking.k8s.io/v1
  ingressclasses IngressClass Cg - -
  ingresses Ingress Nsg ing -
  ipaddresses IPAddress C ip -
  networkpolicies NetworkPolicy Ng netpol -
  servicecidrs ServiceCIDR Cs - -
policy/v1
  poddisruptionbudgets PodDisruptionBudget Nsgu pdb -
rbac.authorization.k8s.io/v1
  clusterrolebindings ClusterRoleBinding Cc - -
  clusterroles ClusterRole Cc - -
  rolebindings RoleBinding Nc - -
  roles Role Nc - -
storage.k8s.io/v1
  csidrivers CSIDriver Cu - -
  csinodes CSINode C - -
  csistoragecapacities CSIStorageCapacity N - -
  storageclasses StorageClass C sc -
  volumeattachments VolumeAttachment Cs - -
  volumeattributesclasses VolumeAttributesClass C vac -
admissionregistration.k8s.io/v1
  mutatingadmissionpolicies MutatingAdmissionPolicy Cgu - api-extensions
  mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding Cgu - api-extensions
  mutatingwebhookconfigurations MutatingWebhookConfiguration Cgu - api-extensions
  validatingadmissionpolicies ValidatingAdmissionPolicy Csgu - api-extensions
  validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding Cgu - api-extensions
  validatingwebhookconfigurations ValidatingWebhookConfiguration Cgu - api-extensions
apiextensions.k8s.io/v1
  customresourcedefinitions CustomResourceDefinition Csgu crd,crds api-extensions
scheduling.k8s.io/v1
  priorityclasses PriorityClass Cg pc -
coordination.k8s.io/v1
  leases Lease Nuc - -
node.k8s.io/v1
  runtimeclasses RuntimeClass Cuc - -
discovery.k8s.io/v1
  endpointslices EndpointSlice Ng - -
resource.k8s.io/v1
  deviceclasses DeviceClass Cg - -
  resourceclaims ResourceClaim Ns - -
  resourceclaimtemplates ResourceClaimTemplate N - -
  resourceslices ResourceSlice C - -
flowcontrol.apiserver.k8s.io/v1
  flowschemas FlowSchema Csg - -
  prioritylevelconfigurations PriorityLevelConfiguration Csg - -
"""
