"""A pod template of the user's own, on a real Kubernetes: taken whole, or refused beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.backends.kubernetes.template import read_template
from jupyter_ddl.errors import ClusterError
from tests.kube.kube_tools import gone, objects, pods, start_kube

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

_TEMPLATE = """
metadata:
  labels: {team: vision}
  annotations: {sidecar.istio.io/inject: "false"}
spec:
  terminationGracePeriodSeconds: 7
  containers:
  - resources: {limits: {cpu: 1}}
"""


def test_labels_annotations_and_numbers_reach_the_pods(namespace: str, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(_TEMPLATE)
    template = read_template(str(path))
    cluster = start_kube(
        namespace,
        1,
        pod_template=template.spec,
        pod_labels=template.labels,
        pod_annotations=template.annotations,
    )
    for component in ("scheduler", "worker"):
        (pod,) = pods(namespace, component)
        assert pod["metadata"]["labels"]["team"] == "vision"
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
        assert pod["spec"]["terminationGracePeriodSeconds"] == 7
    cluster.stop()
    gone(namespace)


def test_a_field_that_would_be_left_out_is_refused(namespace: str) -> None:
    """The API server silently drops what the definition of a DaskCluster does not have."""
    template = '{"nodeSelektor": {"disk": "ssd"}, "containers": [{"arguments": ["x"]}]}'
    with pytest.raises(ClusterError) as caught:
        start_kube(namespace, 1, pod_template=template)
    left_out = "spec.containers[0].arguments, spec.nodeSelektor"
    assert f"would drop {left_out} from" in caught.value.message
    assert objects(namespace) == []
