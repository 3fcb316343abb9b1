"""``--env auto|IMAGE|PATH``: the image that workers are to have, or what it is built from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.environment.configuration import Configuration
from jupyter_ddl.environment.reference import ImageReference, parse_reference
from jupyter_ddl.errors import ImageError

__all__ = ["EnvChoice", "built_image", "choose_env"]

_VARIABLES = ("JUPYTER_IMAGE_SPEC", "JUPYTER_IMAGE")
"""Set by JupyterHub's KubeSpawner and BinderHub, the more exact one first."""
_FILES = (".yml", ".yaml", ".txt", ".toml", "Dockerfile", "Pipfile")
_REPOSITORY = "jupyter-ddl-env"
_TAG_LENGTH = 40


class EnvChoice(msgspec.Struct, frozen=True):
    """What ``--env`` means here; exactly one of ``image`` and ``configuration`` is set."""

    image: ImageReference | None = None
    configuration: Configuration | None = None
    """Of a directory, from which an image can be built (:mod:`jupyter_ddl.environment.image`)."""


def choose_env(text: str, environ: Mapping[str, str], folder: Path) -> EnvChoice:
    """The meaning of a value of ``--env``.

    Parameters
    ----------
    text : str
        ``auto``, an image, or the path of a directory (or of a file in it).
    environ : mapping
        Environment variables of the notebook.
    folder : Path
        What a relative path begins at.

    Raises
    ------
    ImageError
        No image is known for ``auto``, or the text is neither a directory nor an image.
    EnvironmentFileError
        A file of the directory cannot be read as what it is.
    """
    if text == "auto":
        return _own_image(environ)
    path = folder / Path(text).expanduser()
    directory = _directory_of(path)
    if directory is not None:
        return EnvChoice(configuration=read_configuration(directory))
    if text.startswith((".", "/", "~")) or text.endswith(_FILES):
        raise ImageError(
            f"--env {text}: there is no such directory; expected one with environment.yml, "
            f"requirements.txt or binder/, an image, or auto"
        )
    return EnvChoice(image=parse_reference(text))


def _directory_of(path: Path) -> Path | None:
    """What is to be read of a directory, or of a file in it."""
    try:
        return path if path.is_dir() else path.parent if path.is_file() else None
    except OSError:  # longer than a path can be, or in a place that is closed to us
        return None


def built_image(configuration: Configuration, registry: str) -> ImageReference:
    """Name of the image that a directory is built into: the same for the same configuration.

    Parameters
    ----------
    registry : str
        Host, and a path perhaps: ``registry.example:5000/team``.

    Raises
    ------
    ImageError
        The registry is none.
    """
    tag = configuration.digest[:_TAG_LENGTH]
    text = registry.removesuffix("/")
    if "://" in text:
        raise ImageError(
            f"--registry {registry}: expected a host without {text.split('://')[0]}://"
        )
    return parse_reference(f"{text}/{_REPOSITORY}:{tag}" if text else f"{_REPOSITORY}:{tag}")


def _own_image(environ: Mapping[str, str]) -> EnvChoice:
    for name in _VARIABLES:
        value = environ.get(name, "").strip()
        if not value:
            continue
        try:
            return EnvChoice(image=parse_reference(value))
        except ImageError as error:
            raise ImageError(f"--env auto: {name} says {error.message}", reference=value) from None
    raise ImageError(
        f"--env auto: the image of this notebook is not known, since neither {_VARIABLES[0]} nor "
        f"{_VARIABLES[1]} is set (JupyterHub and BinderHub set them); pass --env IMAGE or --env "
        f"PATH of a directory with environment.yml"
    )
