#!/usr/bin/env bash
# kubectl's own acceptance suite (test/cmd of k8s.io/kubernetes) against a server that runs: the sources are in the
# first argument, with kubectl in _output/bin, and KUBECONFIG is set. It is what hack/make-rules/test-cmd.sh does, without
# building programs and starting servers.
set -o errexit -o nounset -o pipefail
cd "$1"
server=$(_output/bin/kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
export SECURE_API_PORT=${server##*:} SUPPORTED_RESOURCES='*' ALLOW_SKEW=1 KUBE_JUNIT_REPORT_DIR=$1/_output/junit
source hack/lib/init.sh
source hack/lib/test.sh
source test/cmd/legacy-script.sh
# The suite's own one writes JUnit reports, by pipes that a proxy which a failed function leaves behind keeps open.
record_command() {
  set +o errexit
  echo "=== $1"
  (trap stop-proxy EXIT; set -o errexit -o nounset; "$@")
  echo "=== $1: $?"
  set -o errexit
}

kube::util::ensure-temp-dir
kube::util::trap_add 'stop-proxy; rm -rf "$KUBE_TEMP"' EXIT
kube::util::ensure-gnu-sed
HOME=$KUBE_TEMP # the suite changes the configuration in it, and those of others stay as they are
unset KUBECONFIG
CONTEXT=test
kubectl config set-credentials test-admin --token admin-token
kubectl config set-cluster local --insecure-skip-tls-verify --server "$server"
kubectl config set-context "$CONTEXT" --user test-admin --cluster local
kubectl config use-context "$CONTEXT"
kubectl create -f - <<'NODE'
{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "127.0.0.1", "annotations": {"save-managers": "true"}}, "status": {"capacity": {"memory": "1Gi"}}}
NODE
runTests
