#!/usr/bin/env bash
# Make a Kubernetes ready for the tests marked `kube`, and say what they need to know:
#
#   eval "$(tools/kube_lab.sh)"           # where ../shared/kubelab exists: start it, or use what runs
#   eval "$(tools/kube_lab.sh IMAGE)"     # elsewhere: KUBECONFIG is set, the operator is installed, and
#                                         # IMAGE, which the nodes can pull, holds this environment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
lab=$root/../shared/kubelab

if [ -n "${1:-}" ]; then
    echo "export JUPYTER_DDL_TEST_IMAGE=$1"
    exit
fi
if [ ! -x "$lab/up" ]; then
    echo "there is no lab beside this checkout; docs/kubernetes.md shows how to use kind or minikube" >&2
    exit 1
fi
if [[ $root == /tmp/* ]]; then
    echo "pods have a /tmp of their own, so their image can't be a checkout below /tmp: $root" >&2
    exit 1
fi
lab=$(cd "$lab" && pwd)
# The checkout's own, whatever is active: the image's packages have to match its jupyter_ddl.
venv=$root/.venv
[ -d "$venv" ] || venv=${VIRTUAL_ENV:?neither .venv nor an active environment}
image=ddl-worker:test
operator=${XDG_CACHE_HOME:-$HOME/.cache}/jupyter_ddl/operator

{
    variables=$("$lab/up")
    eval "$variables"
    if [ ! -x "$operator/bin/kopf" ]; then
        # The oldest kopf that dask-kubernetes allows: newer ones leave clusters in phase Pending.
        "$venv/bin/python" -m venv "$operator"
        "$operator/bin/pip" install -qq --disable-pip-version-check dask-kubernetes kopf==1.38.0
        "$lab/image" ddl-operator:test "$operator"
    fi
    # As an installation leaves it: else each container compiles all of it again when it begins.
    "$venv/bin/python" -m compileall -q "$root/jupyter_ddl"
    "$lab/image" "$image" "$venv" "$root/jupyter_ddl"
    "$lab/operator" ddl-operator:test "$operator"
} >&2

echo "$variables"
echo "export JUPYTER_DDL_TEST_IMAGE=$image JUPYTER_DDL_KUBELAB=$lab"
