"""``%cluster env`` in a real kernel: shown, compared, told in the status and in a dry run."""

from __future__ import annotations

import re
import sys

import pytest

from tests.live_kernel import LiveKernel
from tests.tiny_wheels import make_wheel

pytestmark = pytest.mark.kernel

_CELL = "import ddltiny\nddltiny.__version__\n"


def test_the_environment_is_shown_compared_and_synced(kernel: LiveKernel) -> None:
    home = kernel.home
    wrong = home.work / "environment.yml"
    wrong.write_text("dependencies:\n  - numpy\n - scipy\n")
    out = kernel.run("%cluster env")
    assert out.error is not None
    assert "environment.yml, line 3: it is not YAML" in out.everything
    wrong.write_text("dependencies: [python=3.11, 'numpy>=1.26', graphviz]\n")
    shown = kernel.run("%cluster env").check().everything
    assert "environment.yml (conda of repo2docker)" in shown
    assert "no Python package" in shown
    wrong.unlink()
    assert "numpy" in kernel.run("import numpy as np\n%cluster env").check().everything
    assert "no cluster is running" in kernel.run("%cluster env check").everything

    kernel.run("%cluster start -n 1", timeout_s=90).check()
    assert "environment · same" in kernel.run("%cluster env check").check().everything
    assert "same as the kernel's" in kernel.run("%cluster").check().everything
    said = kernel.run("%cluster env sync").check().everything
    assert "nothing was installed" in said

    # A package of this kernel alone.
    (home.root / "site").mkdir()
    site, wheel = home.root / "site", make_wheel(home.root / "index", "ddltiny", "1.0")
    kernel.run(
        f"import os, sys\nsys.path.insert(0, {str(site)!r})\n"
        f"os.environ['PIP_FIND_LINKS'] = {str(wheel.parent)!r}\n"
        f"!{sys.executable} -m pip install -q --no-index --target {site} {wheel}",
        timeout_s=90,
    ).check()
    checked = kernel.run("%cluster env check").check().everything
    assert "environment · same: Workers have what is used here" in checked
    assert re.search(r"ddltiny +1\.0 +none +worker 0 +not used here", checked)
    dry = kernel.run("%%distribute map --over items --dry-run\nimport ddltiny\nitem\n")
    assert dry.error is not None  # there are no items yet
    kernel.run("items = [1, 2]").check()
    dry = kernel.run("%%distribute map --over items --dry-run\n" + _CELL).check()
    assert "Environment: broken: ddltiny is 1.0 here, worker 0 lacks it" in dry.everything
    refused = kernel.run("%%distribute map --over items\n" + _CELL)
    assert refused.error is not None
    assert (
        "WorkerEnvironmentError: the cell was not sent: ddltiny is 1.0 here" in refused.everything
    )
    assert "%cluster env sync" in refused.everything
    status = kernel.run("%cluster").check().everything
    assert "broken: ddltiny is 1.0 here" in status
    # Cells for the ranks of a group are compared as well, in what each of them imports.
    run = "%%distribute run -n 1 --no-init"
    refused = kernel.run(f"{run}\nimport ddltiny\n")
    assert refused.error is not None
    assert "the cell was not sent: ddltiny is 1.0 here, worker 0 lacks it" in refused.error[1]
    kernel.run(f"{run}\nimport json\n").check()
    sent = kernel.run(f"{run} --env-check off\nimport ddltiny\n")
    assert sent.error is not None
    assert "ModuleNotFoundError: No module named 'ddltiny'" in sent.error[1]
    # The verdict of a check is the one that cells meet.
    checked = kernel.run("%cluster env check").check().everything
    assert "environment · broken: Workers differ in what breaks cells." in checked
    assert re.search(r"ddltiny +1\.0 +none +worker 0 +breaks cells", checked)
