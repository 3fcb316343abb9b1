"""``--env auto|IMAGE|PATH``: the image that workers are to have, or what it is built from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.errors import ImageError

__all__ = ["EnvChoice", "ImageReference", "built_image", "choose_env", "parse_reference"]


# References of container images, by the grammar of the distribution specification.

_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_HOST = re.compile(
    r"(?:(?!-)[A-Za-z0-9-]+(?<!-)(?:\.(?!-)[A-Za-z0-9-]+(?<!-))*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
"""Those that container runtimes can check; the grammar alone would have more."""
_MAX_NAME = 255


class ImageReference(msgspec.Struct, frozen=True):
    """An image: where it lies, and which version of it."""

    registry: str
    """Host and port; empty for the engine's default."""
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}" if self.registry else self.repository
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{name}{tag}{digest}"


def parse_reference(text: str) -> ImageReference:
    """An image from its text: ``[host[:port]/]path[:tag][@digest]``.

    Raises
    ------
    ImageError
        It is none; says which part is wrong and what was expected.
    """
    scheme, is_url, _ = text.partition("://")
    if is_url:
        raise _wrong(text, f"beginning {scheme}://; leave that out")
    rest, at, digest = text.partition("@")
    if at and not _is_digest(digest):
        raise _wrong(text, f"digest {digest!r}; expected sha256: and 64 hexadecimal digits")
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(
            text,
            f"tag {tag!r}; expected up to 128 of letters, digits, _ . -, not . or - first",
        )
    name = f"{head}{slash}{last}"
    registry, repository = _split_host(name)
    if registry and not _HOST.fullmatch(registry):
        raise _wrong(text, f"registry {registry!r}; expected a host name, optionally with :port")
    for part in repository.split("/"):
        if not _COMPONENT.fullmatch(part):
            raise _wrong(text, _component_reason(part))
    if len(name) > _MAX_NAME:
        raise _wrong(text, f"name of {len(name)} characters; expected at most {_MAX_NAME}")
    return ImageReference(registry, repository, tag, digest)


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    is_host = bool(slash) and (
        "." in first or ":" in first or first == "localhost" or first != first.lower()
    )
    return (first, rest) if is_host else ("", name)


def _is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _component_reason(part: str) -> str:
    if not part:
        return "name: a part between two / is empty"
    if part != part.lower() and _COMPONENT.fullmatch(part.lower()):
        return f"name {part!r}; expected lowercase letters, {part.lower()!r} perhaps"
    return (
        f"name {part!r}; expected lowercase letters and digits, with single . _ or - between them"
    )


def _wrong(text: str, reason: str) -> ImageError:
    return ImageError(f"{text!r} is not an image reference: its {reason}", reference=text)


_VARIABLES = ("JUPYTER_IMAGE_SPEC", "JUPYTER_IMAGE")
"""Set by JupyterHub's spawner and BinderHub, the more exact one first."""
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
