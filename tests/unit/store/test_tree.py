"""Files below a folder: whatever a path says, nothing outside is reached."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.store.tree import Tree

_PARTS = st.sampled_from(["", ".", "..", "a", "link", "file", "pipe", "a/b", "\0", "é", "x" * 300])


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return made(tmp_path)


def made(root: Path) -> Tree:
    """A folder with all that could lead out of it."""
    (root / "outside").mkdir()
    (root / "outside/secret").write_bytes(b"secret")
    below = root / "below"
    (below / "a/b").mkdir(parents=True)
    (below / "file").write_bytes(b"file")
    (below / "a/b/c").write_bytes(b"c")
    (below / "link").symlink_to(root / "outside")
    (below / "a/link").symlink_to(root / "outside/secret")
    (below / "a/hard").symlink_to("../file")
    os.mkfifo(below / "pipe")
    (below / ".partial-1").write_bytes(b"half")
    return Tree(below)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_plain_files_are_found_and_nothing_else(tree: Tree) -> None:
    assert {path: seen.st_size for path, seen in tree.files()} == {"file": 4, "a/b/c": 1}
    deep = tree.root
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "f").touch()
    (tree.root / "\x07").touch()
    assert {path for path, _ in tree.files()} == {"file", "a/b/c"}


def test_what_is_a_link_a_pipe_or_leads_elsewhere_is_not_there(tree: Tree) -> None:
    outside = str(tree.root.parent / "outside/secret")
    for path in ("link/secret", "a/link", "a/hard", "pipe", "../outside/secret", outside, "a",
                 "file/x", "", "a//b/c", "a/../file", "none"):  # fmt: skip
        assert tree.stat(path) is None
        with pytest.raises(FileNotFoundError), tree.open(path):
            pass
    (tree.root.parent / "other").symlink_to(tree.root)
    assert Tree(tree.root.parent / "other").stat("file") is None
    seen = tree.stat("a/b/c")
    assert seen is not None
    assert seen.st_size == 1


@settings(max_examples=200)
@given(st.lists(_PARTS, min_size=1, max_size=5))
def test_whatever_path_is_written_nothing_outside_changes(parts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        tree = made(Path(root))
        try:
            draft = tree.begin("/".join(parts))
            draft.add(b"new")
            draft.keep(replaces=True, is_synced=False)
        except OSError:
            pass
        assert names_in(Path(root)) == ["below", "outside"]
        assert names_in(Path(root) / "outside") == ["secret"]
        assert Path(f"{root}/outside/secret").read_bytes() == b"secret"


def test_a_draft_has_its_name_when_it_is_kept(tree: Tree) -> None:
    draft = tree.begin("new/folder/name")
    draft.add(b"abc")
    draft.add(b"d", n_zeros=4096)
    assert tree.stat("new/folder/name") is None
    draft.keep(replaces=False, is_synced=True, changed_at_ns=10**18 + 7)
    path = tree.root / "new/folder/name"
    assert path.read_bytes() == b"abc" + bytes(4096) + b"d"
    assert path.stat().st_mtime_ns == 10**18 + 7
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    second = tree.begin("new/folder/name")
    second.add(b"other")
    with pytest.raises(FileExistsError):
        second.keep(replaces=False, is_synced=False)
    second.drop()
    third = tree.begin("new/folder/name")
    third.add(b"third")
    third.keep(replaces=True, is_synced=False)
    third.drop()
    assert path.read_bytes() == b"third"
    assert names_in(path.parent) == ["name"]


def test_where_there_are_no_hard_links_nothing_is_replaced_either(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    draft = tree.begin("file")
    with pytest.raises(FileExistsError):
        draft.keep(replaces=False, is_synced=False)
    assert (tree.root / "file").read_bytes() == b"file"
    draft = tree.begin("other")
    draft.add(b"x")
    draft.keep(replaces=False, is_synced=False)
    assert (tree.root / "other").read_bytes() == b"x"


def test_what_others_have_left_half_written_is_removed(tree: Tree) -> None:
    tree.drop_partials()
    assert not (tree.root / ".partial-1").exists()
    assert {path for path, _ in tree.files()} == {"file", "a/b/c"}
    tree.remove("a/b/c")
    tree.remove("a/b/c")
    tree.remove("link/secret")
    assert (tree.root.parent / "outside/secret").exists()
