"""References of container images, by the grammar of the distribution specification."""

from __future__ import annotations

import re

import msgspec

from jupyter_ddl.errors import ImageError

__all__ = ["ImageReference", "parse_reference"]

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
        raise _wrong(text, f"registry {registry!r}; expected a host name, with :port perhaps")
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
        return f"name {part!r}; expected small letters, {part.lower()!r} perhaps"
    return f"name {part!r}; expected small letters and digits, with single . _ or - between them"


def _wrong(text: str, reason: str) -> ImageError:
    return ImageError(f"{text!r} is no image reference: its {reason}", reference=text)
