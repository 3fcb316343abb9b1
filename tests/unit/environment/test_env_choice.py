"""``--env`` is an image, a directory, or the notebook's own image."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.environment.image_choice import built_image, choose_env
from jupyter_ddl.errors import EnvironmentFileError, ImageError


def test_auto_takes_the_image_that_the_hub_has_named(tmp_path: Path) -> None:
    both = {"JUPYTER_IMAGE_SPEC": "hub.example/lecture:v3", "JUPYTER_IMAGE": "other"}
    assert str(choose_env("auto", both, tmp_path).image) == "hub.example/lecture:v3"
    assert str(choose_env("auto", {"JUPYTER_IMAGE": "other"}, tmp_path).image) == "other"


def test_auto_without_an_image_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"neither JUPYTER_IMAGE_SPEC nor .*pass --env IMAGE or"):
        choose_env("auto", {"JUPYTER_IMAGE_SPEC": " "}, tmp_path)
    with pytest.raises(ImageError, match=r"--env auto: JUPYTER_IMAGE says 'A B' is not an image"):
        choose_env("auto", {"JUPYTER_IMAGE": "A B"}, tmp_path)


def test_a_directory_or_a_file_in_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "binder").mkdir()
    (tmp_path / "binder" / "requirements.txt").write_text("numpy\n")
    by_directory = choose_env(".", {}, tmp_path)
    assert by_directory.image is None
    assert by_directory.configuration is not None
    for text in ("binder", str(tmp_path), "binder/requirements.txt"):
        assert choose_env(text, {}, tmp_path).configuration == by_directory.configuration
    (tmp_path / "binder" / "requirements.txt").write_text("a b c\n")
    with pytest.raises(EnvironmentFileError, match=r"binder/requirements\.txt, line 1"):
        choose_env("binder", {}, tmp_path)


@pytest.mark.parametrize("text", ["./absent", "/absent/place", "absent/environment.yml"])
def test_a_directory_that_is_not_there_is_no_image(tmp_path: Path, text: str) -> None:
    with pytest.raises(ImageError, match="there is no such directory"):
        choose_env(text, {}, tmp_path)


def test_anything_else_is_an_image_or_refused(tmp_path: Path) -> None:
    assert str(choose_env("user/image:1", {}, tmp_path).image) == "user/image:1"
    with pytest.raises(ImageError, match="'user/Image' is not an image reference"):
        choose_env("user/Image", {}, tmp_path)
    with pytest.raises(ImageError, match="name of 300 characters; expected at most 255"):
        choose_env("a" * 300, {}, tmp_path)


def test_the_name_of_a_built_image_follows_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    names = []
    for text in ("numpy\npandas\n", "pandas # first\nnumpy\n", "numpy\n"):
        file.write_text(text)
        chosen = choose_env(".", {}, tmp_path).configuration
        assert chosen is not None
        names.append(str(built_image(chosen, "registry.example:5000/team/")))
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("registry.example:5000/team/jupyter-ddl-env:")
    with pytest.raises(ImageError, match="without https://"):
        built_image(chosen, "https://registry.example")
