"""Image references are taken apart by the distribution grammar, and refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.environment.image_choice import ImageReference, parse_reference
from jupyter_ddl.errors import ImageError

_SHA = "sha256:" + "a1" * 32


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("python", "", "python", "", ""),
        ("python:3.12-slim", "", "python", "3.12-slim", ""),
        ("user/image", "", "user/image", "", ""),
        ("localhost/image", "localhost", "image", "", ""),
        ("host:5000/a/b:v1", "host:5000", "a/b", "v1", ""),
        ("ghcr.example/a__b/c-d.e:x", "ghcr.example", "a__b/c-d.e", "x", ""),
        (f"host.example/a@{_SHA}", "host.example", "a", "", _SHA),
        (f"a:latest@{_SHA}", "", "a", "latest", _SHA),
        ("[::1]:5000/a", "[::1]:5000", "a", "", ""),
    ],
)
def test_a_reference_is_taken_apart(
    text: str, registry: str, repository: str, tag: str, digest: str
) -> None:
    found = parse_reference(text)
    assert found == ImageReference(registry, repository, tag, digest)
    assert str(found) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a part between two / is empty"),
        ("Image", "lowercase letters, 'image' perhaps"),
        ("A B", "lowercase letters and digits"),
        ("a//b", "is empty"),
        ("a/", "is empty"),
        ("a b", "lowercase letters and digits"),
        ("-a", "lowercase letters and digits"),
        ("a..b", "lowercase letters and digits"),
        ("a:", "tag ''"),
        ("a:.x", "tag '.x'"),
        ("a:" + "x" * 129, "up to 128"),
        ("a@sha256:12", "digest 'sha256:12'"),
        ("a@", "digest ''"),
        ("host_.example/a", "registry 'host_.example'"),
        ("host.example:port/a", "registry 'host.example:port'"),
        ("a" * 256, "256 characters"),
        ("https://host.example/a", "its beginning https://; leave that out"),
        ("a@md5:" + "0" * 32, "digest 'md5:"),
        ("a@sha256:" + "A1" * 32, "expected sha256: and 64 hexadecimal digits"),
        ("a@sha512:" + "a1" * 32, "digest 'sha512:"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ImageError) as raised:
        parse_reference(text)
    assert reason in raised.value.message
    assert "\n" not in raised.value.message


@given(st.text(max_size=40))
def test_any_text_is_taken_whole_or_refused_in_one_line(text: str) -> None:
    shown = ""
    try:
        shown = str(parse_reference(text))
    except ImageError as error:
        shown = text if "\n" not in error.message else error.message
    assert shown == text
