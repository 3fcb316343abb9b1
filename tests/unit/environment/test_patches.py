"""What is to be installed on workers, and how one list of it follows another.  Real pip."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.client.sync import wanted_packages
from jupyter_ddl.controller.environment import KeptPackages, merge_patches
from jupyter_ddl.environment.wheels import fetch_wheels, runs_on
from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.facts import Facts, PackageContents, Patch, WheelFile
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.wheel_contents import (
    differs_from,
    installed_contents,
    is_bomb,
    wheel_digest,
)
from jupyter_ddl.worker.packages import install, overlay_base
from tests.tiny_wheels import install as make_installed
from tests.tiny_wheels import make_wheel


def facts(packages: dict[str, str], **fields: dict[str, str]) -> Facts:
    return Facts("3.12.1", "cpython", "x86_64", packages, **fields)


def test_what_differs_on_any_worker_is_installed() -> None:
    kernel = facts({"a": "1", "b": "2", "c": "3", "dask": "9"}, sources={"c": "editable file:///c"})
    workers = {
        "0": facts({"a": "1", "b": "1", "c": "3", "dask": "8", "only-there": "1"}),
        "1": facts({"b": "2", "c": "3", "dask": "9"}, sources={"c": "editable file:///c"}),
    }
    assert wanted_packages(kernel, workers, None) == (("a", "b", "c"), (), ("dask",))
    assert wanted_packages(kernel, workers, frozenset({"b"})) == (("b",), (), ())
    assert wanted_packages(kernel, {}, None) == ((), (), ())


def test_what_is_on_the_workers_disk_already_only_needs_new_ranks() -> None:
    kernel = facts({"a": "2"})
    held = facts({"a": "1"}, held={"a": "2"})
    assert wanted_packages(kernel, {"0": held}, None) == ((), ("a",), ())
    # Something else than the kernel's version is on the disk.
    other = facts({"a": "1"}, held={"a": "3"})
    assert wanted_packages(kernel, {"0": other}, None) == (("a",), (), ())
    # One of them lacks it altogether.
    assert wanted_packages(kernel, {"0": held, "1": facts({})}, None) == (("a",), (), ())


def test_a_newer_patch_replaces_what_both_have_and_keeps_the_rest() -> None:
    old_wheel, new_wheel = (WheelFile(f"A_b-{v}-py3-none-any.whl", v, 1) for v in ("1", "2"))
    old = Patch(("a-b==1", "c==1", "d @ git+https://host.example/d"), (old_wheel,), 1.0)
    new = Patch(("a-b==2", "D==3"), (new_wheel,), 2.0)
    assert merge_patches(old, new) == Patch(("c==1", "a-b==2", "D==3"), (new_wheel,), 2.0)
    first, second = PackageContents((), "1"), PackageContents((), "2")
    old = msgspec.structs.replace(old, contents={"a-b": first, "c": first})
    assert merge_patches(old, new).contents == {"c": first}
    new = msgspec.structs.replace(new, contents={"a-b": second})
    assert merge_patches(old, new).contents == {"c": first, "a-b": second}
    assert merge_patches(Patch(), new) == new


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("JUPYTER_DDL_OVERLAY", str(tmp_path / "overlay"))
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def test_workers_of_one_host_install_once_and_share_it(index: Path) -> None:
    make_wheel(index, "ddltiny", "1.0")
    own = make_wheel(index.parent / "own", "ddlown", "1.0").read_bytes()
    wheel = WheelFile("ddlown-1.0-py3-none-any.whl", digest_of(own), len(own), '{"url": "x"}')
    patch = Patch(("ddltiny==1.0", "ddlown==1.0"), (wheel,))

    async def both() -> list[Path]:
        return await asyncio.gather(*(install(patch, {wheel.name: own}) for _ in range(2)))

    first, second = asyncio.run(both())
    assert first == second
    assert {path.name for path in first.glob("*.py")} == {"ddltiny.py", "ddlown.py"}
    assert (first / "ddlown-1.0.dist-info" / "direct_url.json").read_text() == '{"url": "x"}'
    # Fetched once: the next patch of this host needs no index for it.
    (index / "ddltiny-1.0-py3-none-any.whl").unlink()
    make_wheel(index, "ddlnext", "1.0")
    more = Patch(("ddltiny==1.0", "ddlnext==1.0"))
    directory = asyncio.run(install(more, {}))
    assert {path.name for path in directory.glob("*.py")} == {"ddltiny.py", "ddlnext.py"}


def test_a_wheel_that_another_python_of_this_host_has_fetched_is_left_alone(index: Path) -> None:
    store = index.parent / "overlay" / "wheels"
    theirs = make_wheel(store, "ddltiny", "1.0")
    theirs.rename(store / "ddltiny-1.0-cp27-cp27m-win32.whl")
    make_wheel(store, "ddlnext", "1.0").rename(store / "ddlnext-1.0-nonsense.whl")
    for name in ("ddltiny", "ddlnext"):
        make_wheel(index, name, "1.0")
    directory = asyncio.run(install(Patch(("ddltiny==1.0", "ddlnext==1.0")), {}))
    assert {path.name for path in directory.glob("*.py")} == {"ddltiny.py", "ddlnext.py"}


def test_what_can_be_fetched_here_is_and_the_rest_is_left_to_the_workers(
    index: Path, tmp_path: Path
) -> None:
    for name in ("ddlone", "ddltwo"):
        make_wheel(index, name, "1.0")
    target = tmp_path / "fetched"
    target.mkdir()
    found = fetch_wheels(["ddlone==1.0", "ddlabsent==1.0", "ddltwo==1.0"], target)
    assert [path.name.split("-")[0] for path in found] == ["ddlone", "ddltwo"]
    assert fetch_wheels([], target) == []


def test_a_wheel_of_this_platform_goes_to_workers_of_the_same() -> None:
    kernel = facts({})
    compiled, pure = Path("x-1-cp312-cp312-linux_x86_64.whl"), Path("x-1-py3-none-any.whl")
    patch_version, other = (
        Facts("3.12.9", "cpython", "x86_64", {}),
        Facts("3.12.1", "cpython", "aarch64", {}),
    )
    assert runs_on(compiled, kernel, [kernel, patch_version])
    assert not runs_on(compiled, kernel, [kernel, other])
    assert runs_on(pure, kernel, [kernel, other])


def test_a_list_outlives_its_controller_for_workers_of_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))

    def kept(image: str) -> KeptPackages:
        return KeptPackages(ClusterSpec("a", "kube"), image)

    assert kept("one:1").read() is None
    patch, wheels = Patch(("x==1",), made_at_s=1.0), {"x-1-py3-none-any.whl": b"wheel"}
    kept("one:1").write(patch, wheels)
    assert kept("one:1").read() == (patch, wheels)
    assert kept("two:1").read() is None
    (file,) = (tmp_path / "jupyter_ddl").iterdir()
    file.write_bytes(b"cut off")
    assert kept("one:1").read() is None
    kept("one:1").remove()
    kept("one:1").remove()
    assert list((tmp_path / "jupyter_ddl").iterdir()) == []


def test_a_wheel_with_other_files_than_the_kernels_is_refused_and_forgotten(
    index: Path, tmp_path: Path
) -> None:
    make_installed(make_wheel(tmp_path / "true", "ddltiny", "1.0"), tmp_path / "here")
    known = installed_contents(tmp_path / "here" / "ddltiny-1.0.dist-info")
    assert known is not None
    patch = Patch(("ddltiny==1.0",), contents={"ddltiny": known})
    make_wheel(index, "ddltiny", "1.0", "import os\n")
    with pytest.raises(WorkerEnvironmentError, match="has other files here than the wheel"):
        asyncio.run(install(patch, {}))
    make_wheel(index, "ddltiny", "1.0")
    assert (asyncio.run(install(patch, {})) / "ddltiny.py").exists()


def test_a_wheel_that_does_not_come_as_it_was_sent_is_not_installed(
    index: Path, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / "sent", "ddltiny", "1.0")
    other = make_wheel(tmp_path / "other", "ddltiny", "1.0", "import os\n")
    sent = WheelFile(wheel.name, digest_of(wheel.read_bytes()), 1)
    patch = Patch(("ddltiny==1.0",), wheels=(sent,))
    for name, data in ((wheel.name, other.read_bytes()), ("ddlmore-1.0-py3-none-any.whl", b"")):
        with pytest.raises(WorkerEnvironmentError, match=f"^{name} has not come here as it was"):
            asyncio.run(install(patch, {name: data}))
    assert not list(overlay_base().glob("wheels/*.whl"))
    assert (asyncio.run(install(patch, {wheel.name: wheel.read_bytes()})) / "ddltiny.py").exists()


def test_a_wheel_that_would_fill_the_disk_is_refused_and_forgotten(index: Path) -> None:
    wheel = make_wheel(index, "ddltiny", "1.0")
    assert not is_bomb(wheel)
    with (
        zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("ddltiny_data.bin", "w", force_zip64=True) as file,
    ):
        for _ in range(1200):
            file.write(bytes(1 << 20))
    with pytest.raises(WorkerEnvironmentError, match="would unpack to more than a hundred times"):
        asyncio.run(install(Patch(("ddltiny==1.0",)), {}))
    assert not list(overlay_base().glob("*/*"))


def test_whose_wheel_is_not_known_is_told_by_tags_and_installer(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "ddltiny", "1.0")
    make_installed(wheel, tmp_path / "here")
    info = tmp_path / "here" / "ddltiny-1.0.dist-info"
    known = installed_contents(info)
    assert known == PackageContents(("py3-none-any",), wheel_digest(wheel))
    assert not differs_from(wheel, known)
    evil = make_wheel(tmp_path / "evil", "ddltiny", "1.0", "x = 1\n")
    assert differs_from(evil, known)
    # One that was cut off is forgotten, and fetched again.
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    assert differs_from(wheel, known)
    # For another Python or platform there is another wheel.
    assert not differs_from(evil.rename(evil.with_name("ddltiny-1.0-cp312-cp312-any.whl")), known)
    for file, text in (
        ("INSTALLER", "conda"),
        ("WHEEL", "Tag: cp312-cp312-linux_x86_64\n"),
        ("RECORD", "ddltiny.py,,\n"),
    ):
        before = (info / file).read_text()
        (info / file).write_text(text)
        assert installed_contents(info) is None
        (info / file).write_text(before)
    assert installed_contents(info) == known


def test_files_that_a_wheel_puts_elsewhere_lie_among_the_packages(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "ddltiny", "1.0")
    plain = wheel_digest(wheel)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("ddltiny-1.0.data/scripts/tiny", "#!python\n")
        archive.writestr("ddltiny-1.0.dist-info/LICENSE", "none")
    assert wheel_digest(wheel) == plain, "pip rewrites scripts, and adds to the metadata"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("ddltiny-1.0.data/purelib/ddlmore.py", "x = 1\n")
    assert wheel_digest(wheel) != plain


def test_a_failed_installation_leaves_nothing_that_counts(index: Path) -> None:
    patch = Patch(("ddltiny==1.0",))
    with pytest.raises(WorkerEnvironmentError, match=r"No matching distribution found for ddltiny"):
        asyncio.run(install(patch, {}))
    make_wheel(index, "ddltiny", "1.0")
    assert (asyncio.run(install(patch, {})) / "ddltiny.py").exists()


def test_packages_go_where_something_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()  # as a read-only root: no directory can be made below it
    monkeypatch.setenv("JUPYTER_DDL_OVERLAY", str(blocked / "overlay"))
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(blocked / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert overlay_base().parent == tmp_path
    monkeypatch.setattr("tempfile.tempdir", str(blocked))
    with pytest.raises(WorkerEnvironmentError, match=r"set JUPYTER_DDL_OVERLAY"):
        overlay_base()
