"""What looks like a secret is masked before text is given to others, and what may be one is told.

The formats are those that the services themselves document.  Where ``detect-secrets`` is installed
(``pip install 'jupyter_ddl[export]'``), its patterns are asked as well.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from jupyter_ddl.formats import format_counted
from jupyter_ddl.settings.secret_names import SECRET_WORDS, sounds_secret

__all__ = ["MASK", "SecretMasker", "has_scanner"]

MASK = "•••"
MIN_SECRET = 6
_KEPT = 4096
"""Short texts whose answer is remembered: names of metrics come a hundred thousand times."""

_HARMLESS_VALUE = re.compile(
    rf"[\"']?(?:{MASK}|(?:true|false|none|null|nan|-?[\d.]{{1,6}})(?!\w)|os\.|getpass\.|getpass\(|input\(|\$\{{?\w|…|<\w*>)",
    re.I,
)


# Kinds, with the group of each pattern that is the secret (0: all of it).
_KINDS: tuple[tuple[str, int, re.Pattern[str]], ...] = tuple(
    (kind, group, re.compile(pattern))
    for kind, group, pattern in (
        (
            "private key",
            0,
            r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        ),
        # Of a log whose beginning is cut off.
        (
            "private key",
            0,
            r"\A(?:[ \t]*[A-Za-z0-9+/=]{16,76}[ \t]*\r?\n)*[ \t]*[A-Za-z0-9+/=]*\r?\n?"
            r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----",
        ),
        ("private key", 0, r"AGE-SECRET-KEY-1[0-9A-Za-z]{20,}"),
        ("password in an address", 1, r"\b[a-z][a-z0-9+.-]*://([^\s/@:\"']*:[^\s/@\"']+)@"),
        ("token in an address", 1, r"\bhttps?://([^\s/@:\"']{6,})@"),
        (
            "signature in an address",
            1,
            r"(?i)[?&](?:sig|signature|x-(?:amz|goog|oss)-(?:signature|credential|security-token)|"
            r"token|access_token|auth|key|api_?key|code|password|secret)=([^&\s\"'<>]{6,})",
        ),
        (
            "webhook",
            0,
            r"https://(?:hooks\.slack\.com/(?:services|workflows)|(?:\w+\.)?discord(?:app)?\.com/api/"
            r"webhooks|[\w.-]+\.webhook\.office\.com)/[\w./@-]+",
        ),
        ("token of GitHub", 0, r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,})"),
        ("token of GitLab", 0, r"\bgl(?:pat|dt|ft|soat|rt|cbt|imt|agent|ptt|oas)-[\w-]{16,}"),
        ("token of Hugging Face", 0, r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}"),
        ("key of an AI service", 0, r"\bsk-[\w-]{16,}"),
        (
            "key of an AI service",
            0,
            r"\b(?:gsk|r8|xai|pplx|nvapi|tvly|pcsk|csk|fw|jina|fal)[_-][\w-]{20,}",
        ),
        ("key of wandb", 0, r"\bwandb_v\d_\w{20,}"),
        ("key of AWS", 0, r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b"),
        (
            "key of Google",
            0,
            r"\b(?:AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{20,})",
        ),
        (
            "key of Azure",
            1,
            r"(?i)(?:AccountKey|SharedAccessKey|SharedAccessSignature)=([^;\s\"']+)",
        ),
        ("token of Databricks", 0, r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
        ("token of Slack", 0, r"\b(?:xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{10,})"),
        ("token of Discord", 0, r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
        ("token of Telegram", 0, r"\b\d{8,10}:AA[\w-]{33}\b"),
        ("key of Stripe", 0, r"\b(?:sk|rk|pk|whsec)_(?:live|test)?_?[A-Za-z0-9]{16,}"),
        ("key of SendGrid", 0, r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
        ("key of Twilio", 0, r"\b(?:SK|AC)[0-9a-f]{32}\b"),
        ("key of Mailgun", 0, r"\bkey-[0-9a-f]{32}\b"),
        ("key of Mailchimp", 0, r"\b[0-9a-f]{32}-us\d{1,2}\b"),
        ("token of npm", 0, r"\bnpm_[A-Za-z0-9]{30,}"),
        ("token of PyPI", 0, r"\bpypi-[\w-]{30,}"),
        ("token of Docker", 0, r"\bdckr_(?:pat|oat)_[\w-]{20,}"),
        ("token of Vault", 0, r"\bhv[sbr]\.[\w-]{20,}"),
        ("token of Terraform", 0, r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
        ("token of Atlassian", 0, r"\bATATT3x[\w=-]{20,}"),
        ("key of Grafana", 0, r"\b(?:glc|glsa|eyJrIjoi)[_A-Za-z0-9+/=]{20,}"),
        ("token of DigitalOcean", 0, r"\bdo[opr]_v1_[0-9a-f]{40,}"),
        ("token of Shopify", 0, r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
        ("token of Square", 0, r"\b(?:sq0(?:atp|csp)-[\w-]{20,}|EAAA[\w-]{50,})"),
        (
            "key of Postman or New Relic",
            0,
            r"\b(?:PMAK-[0-9a-f]{24}-[0-9a-f]{34}|NRAK-[A-Z0-9]{27})",
        ),
        ("token of Linear or Figma", 0, r"\b(?:lin_api_[A-Za-z0-9]{32,}|figd_[\w-]{30,})"),
        ("token of Sentry", 0, r"\bsntry[su]_[\w+/=-]{30,}"),
        ("JSON web token", 0, r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
        ("hash of a password", 0, r"\$(?:2[aby]|5|6|y|argon2\w*)\$[\w./$=,+-]{20,}"),
        (
            "header of authentication",
            1,
            r"(?i)\b(?:authorization|cookie|x-[\w-]*(?:key|token|secret|auth)[\w-]*)[\"']?\s*[:=]\s*"
            r"[\"']?([^\"'\n]{6,})",
        ),
        ("header of authentication", 1, r"(?i)\b(?:bearer|basic)\s+((?=\S*[\d=])[\w.~+/=-]{8,})"),
        ("argument of a login", 1, r"(?i)\blogin\(([^)\n]*[\"'][^)\n]*)\)"),
        ("argument of a login", 1, r"(?:\s|^)(?:-u|--user)[ =]([^\s:]+:\S+)"),
        ("argument of a login", 1, r"(?i)\bpassword\s+([^\s=:]{6,})\s*(?:$|\n|machine\b)"),
    )
)
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w.-])(?P<name>[\w.-]*(?:{SECRET_WORDS})[\w.-]*)[\"']?\s*(?:[:=]|=>)\s*"
    r"(?P<value>\"\"\"[^\"]*\"\"\"|\\?\"[^\"\n]*\"|\\?'[^'\n]*'|[^\s,;)\]}&]+)"
)
_OPTION = re.compile(
    rf"(?i)(?:\s|^|[\"'])--?(?P<name>[\w-]*(?:{SECRET_WORDS})[\w-]*)(?:[\"'],)?\s+[\"']?"
    r"(?P<value>[^\s\"'-][^\s\"']{5,})"
)
# Names that say little: their values count if they look random.
_KEY = re.compile(
    r"(?i)(?<![\w.-])(?P<name>key|pass|pat|sas|bearer|id_rsa)[\"']?\s*[:=]\s*[\"']?"
    r"(?P<value>[\w+/=.~-]{16,})"
)
_RANDOM = re.compile(r"(?<![\w+=•-])[A-Za-z0-9_+=-]{20,}(?![\w+=•-])")
_HEX = re.compile(r"\A[0-9a-f]{32,}\Z|\A[0-9A-F]{32,}\Z")
_MIN_BITS = {"hex": 3.0, "other": 3.8, "named": 3.0}


class SecretMasker:
    """Masks secrets, and remembers what it has masked and what it is not sure of.

    Parameters
    ----------
    environ : mapping
        Where values of variables that sound like secrets are looked up.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._values = sorted(_forms_of_secrets(environ), key=len, reverse=True)
        self._found: dict[str, set[int]] = {}
        self._doubts: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text without secrets, by all that is known of them."""
        if len(text) < MIN_SECRET:
            return text
        known = self._known.get(text)
        if known is not None:
            return known
        masked = self._masked(text)
        if len(text) < 64:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[text] = masked
        return masked

    def doubt(self, text: str, where: str) -> None:
        """Remember what in a masked text looks random, and may be anything."""
        for found in _RANDOM.finditer(text):
            value = found[0]
            if value not in self._doubts and _is_random(value):
                self._doubts[value] = where

    @property
    def masked(self) -> tuple[str, ...]:
        """What was masked, in words: how many different ones of each kind."""
        counts = Counter({kind: len(values) for kind, values in self._found.items()})
        return tuple(format_counted(n, kind, _plural(kind)) for kind, n in counts.most_common())

    @property
    def doubts(self) -> tuple[str, ...]:
        """What looks random and was left, in words."""
        return tuple(
            f"{value[:4]}… ({len(value)} characters, {where})"
            for value, where in self._doubts.items()
        )

    def _masked(self, text: str) -> str:
        for value in self._values:
            if value in text:
                self._note("value of a secret variable", value)
                text = text.replace(value, MASK)
        for kind, group, pattern in _KINDS:
            text = self._replace(kind, pattern, group, text)
        text = self._replace(
            "password or token by its name", _ASSIGNED, "value", text, _is_assigned
        )
        text = self._replace("password or token by its name", _OPTION, "value", text, _is_assigned)
        text = self._replace("password or token by its name", _KEY, "value", text, _looks_random)
        for pattern in _of_scanner():
            text = self._replace("secret of the scanner", pattern, 0, text)
        return text

    def _replace(
        self,
        kind: str,
        pattern: re.Pattern[str],
        group: int | str,
        text: str,
        counts: Callable[[re.Match[str]], bool] = lambda _: True,
    ) -> str:
        def mask(found: re.Match[str]) -> str:
            secret = found[group]
            if not secret or MASK in secret.strip("\"'\\") or not counts(found):
                return found[0]
            self._note(kind, secret)
            start, end = found.start(group) - found.start(), found.end(group) - found.start()
            return found[0][:start] + MASK + found[0][end:]

        return pattern.sub(mask, text)

    def _note(self, kind: str, value: str) -> None:
        self._found.setdefault(kind, set()).add(hash(value.strip("\"'\\")))


def _plural(kind: str) -> str:
    first, of, rest = kind.partition(" ")
    plural = f"{first}es" if first.endswith("sh") else f"{first}s"
    if first in ("private", "JSON"):
        return f"{kind}s"
    return f"{plural}{of}{rest}"


def _is_assigned(found: re.Match[str]) -> bool:
    name, value = found["name"], found["value"].strip("\"'\\")
    return len(value) > 2 and sounds_secret(name) and _HARMLESS_VALUE.match(found["value"]) is None


def _looks_random(found: re.Match[str]) -> bool:
    return _bits(found["value"]) >= _MIN_BITS["named"] and any(map(str.isdigit, found["value"]))


def _is_random(value: str) -> bool:
    if _HEX.match(value):
        return _bits(value) >= _MIN_BITS["hex"]
    is_mixed = all(any(map(kind, value)) for kind in (str.isdigit, str.isupper, str.islower))
    return is_mixed and _bits(value) >= _MIN_BITS["other"]


def _bits(value: str) -> float:
    """Of a character, by how often each occurs."""
    n = len(value)
    return -sum(k / n * math.log2(k / n) for k in Counter(value).values())


def _forms_of_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Values of variables that sound like secrets, as they stand in text, JSON and addresses."""
    for name, value in environ.items():
        if not sounds_secret(name) or len(value) < MIN_SECRET or value.startswith("/"):
            continue
        yield from {
            value,
            json.dumps(value)[1:-1],
            repr(value)[1:-1],
            quote(value, safe=""),
            base64.b64encode(value.encode(errors="replace")).decode(),
        }
        yield from (line for line in value.splitlines() if len(line) >= 16)


# The scanner's patterns, where it is installed.


def has_scanner() -> bool:
    """Whether ``detect-secrets`` is there."""
    return bool(_of_scanner())


@functools.cache
def _of_scanner() -> tuple[re.Pattern[str], ...]:
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    except ImportError:
        return ()
    kinds: Any = get_mapping_from_secret_type_to_class().values()
    left_out = {"IPPublicDetector", "PrivateKeyDetector", "BasicAuthDetector", "JwtTokenDetector"}
    return tuple(
        pattern
        for kind in kinds
        if kind.__name__ not in left_out
        for pattern in getattr(kind, "denylist", ())
        if isinstance(pattern, re.Pattern)
    )
