"""Forty secrets of different kinds, none of them real, as they stand in cells and output.

Each is built from parts, so that no scanner takes this file for a leak.  ``CELL`` has them all: in
its source, in what it prints, and in the error that it raises.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping

__all__ = ["CANARIES", "CELL", "VARIABLE", "Canary", "places_of"]

Canary = tuple[str, str, str]
"""A name, a line with the secret in it, and the secret."""

_rng = random.Random(20)
_HEX = "0123456789abcdef"
_WORD = string.ascii_letters + string.digits


def _some(n: int, alphabet: str = _WORD) -> str:
    return "".join(_rng.choice(alphabet) for _ in range(n - 2)) + "a7"


def _of(name: str, line: str, secret: str) -> Canary:
    return name, line.replace("@@", secret), secret


_PEM = "\n".join(
    ["-----BEGIN {0} KEY-----", *(_some(64) for _ in range(6)), "-----END {0} KEY-----"]
)
_RSA, _SSH = (_PEM.format(kind) for kind in ("RSA PRIVATE", "OPENSSH PRIVATE"))

CANARIES: tuple[Canary, ...] = (
    _of("password in quotes", "password = '@@'", _some(12)),
    _of("password of a shell", "export DB_PASSWORD=@@", _some(10)),
    _of("passphrase in json", '{"passphrase": "@@"}', _some(14)),
    _of("token in yaml", "api_token: @@", _some(20)),
    _of("key of wandb in a login", 'wandb.login(key="@@")', _some(40, _HEX)),
    _of("key of wandb by its name", "WANDB_API_KEY=@@", _some(40, _HEX)),
    _of("login of a hub", 'huggingface_hub.login("@@")', "hf" + "_" + _some(34)),
    _of("token of a hub alone", "got @@ from somewhere", "hf" + "_" + _some(34)),
    _of("github", "remote: @@", "gh" + "p_" + _some(36)),
    _of("github, fine-grained", "using @@ now", "github" + "_pat_" + _some(60)),
    _of("gitlab", "curl --header 'PRIVATE-TOKEN: @@'", "gl" + "pat-" + _some(20)),
    _of("token in an address", "pip install git+https://@@@example.org/x.git", _some(24)),
    _of("password in an address", "postgresql://me:@@@db.example.org/x", _some(12)),
    _of(
        "sas signature", "https://x.blob.core.windows.net/c?sv=2022&sig=@@&se=1", _some(43) + "%3D"
    ),
    _of("aws signature", "https://b.s3.amazonaws.com/k?X-Amz-Signature=@@", _some(64, _HEX)),
    _of("aws key id", "aws @@ found", "AK" + "IA" + _some(18, string.ascii_uppercase)[:16]),
    _of("aws secret", "aws_secret_access_key = @@", _some(40)),
    _of("azure account key", "AccountName=a;AccountKey=@@;EndpointSuffix=x", _some(86) + "=="),
    _of("google key", "maps with @@ loaded", "AI" + "za" + _some(35)),
    _of("google oauth", "refresh gave @@ ok", "ya" + "29." + _some(60)),
    _of("openai", "client(@@)", "sk" + "-proj-" + _some(48)),
    _of("anthropic", "using @@", "sk" + "-ant-api03-" + _some(60)),
    _of("slack", "bot @@ online", "xo" + "xb-" + _some(12, string.digits) + "-" + _some(24)),
    _of("slack webhook", "post to @@", "https://hooks." + "slack.com/services/T0/B0/" + _some(24)),
    _of("stripe", "charge with @@", "sk" + "_live_" + _some(24)),
    _of("sendgrid", "mail by @@", "SG" + "." + _some(22) + "." + _some(43)),
    _of("twilio", "call by @@", "S" + "K" + _some(30, _HEX) + "a7"),
    _of("telegram", "bot @@", "123456789" + ":AA" + _some(33)),
    _of("npm", "//registry/:_x @@", "npm" + "_" + _some(36)),
    _of("pypi", "upload with @@", "py" + "pi-AgEIcHlwaS5vcmc" + _some(70)),
    _of("docker", "docker login -p @@", "dckr" + "_pat_" + _some(27)),
    _of("vault", "VAULT says @@", "hv" + "s." + _some(90)),
    _of("databricks", "connect @@", "da" + "pi" + _some(30, _HEX) + "a7"),
    _of("jwt", "cookie then @@", "ey" + "J" + _some(20) + ".ey" + _some(40) + "." + _some(43)),
    _of("bearer", "headers: Bearer @@", _some(40)),
    _of("authorization", "Authorization: Token @@", _some(40, _HEX)),
    _of("curl user", "curl -u me:@@ https://example.org", _some(12)),
    _of("option of a command", "deploy --api-key @@ now", _some(32)),
    ("rsa key", f"key is\n{_RSA}\nwritten", _RSA.splitlines()[3]),
    ("ssh key in one line", f"KEY = {_SSH!r}", _SSH.splitlines()[3]),
    ("variable of the environment", "", "plain" + "looking" + _some(4)),
)

VARIABLE = CANARIES[-1][2]
"""What the variable ``MY_TOKEN`` of the ranks is to be."""
_LINES = [line for _, line, _ in CANARIES if line]
CELL = f"""
import os
# {_LINES[0]}
LINES = {_LINES!r}
print("\\n".join(LINES), os.environ["MY_TOKEN"])
report(step=1, loss=0.5)
raise ValueError("\\n".join(LINES) + os.environ["MY_TOKEN"])
"""


def places_of(secret: str, seen: Mapping[str, bytes]) -> list[str]:
    """Where a secret is found, or a large part of it."""
    part = secret[8:24] if len(secret) >= 24 else secret
    return [where for where, data in seen.items() if part.encode() in data]
