"""Names of variables and options whose values are secrets, as far as one can tell."""

from __future__ import annotations

import re

__all__ = ["SECRET_WORDS", "sounds_secret"]

SECRET_WORDS = (
    r"token|secret|passw|passphrase|(?<![a-z])pwd|credential|api_?-?key|access_?-?key|account_?-?key|"
    r"private_?-?key|signing_?-?key|encryption_?-?key|key-data|connection_?string|(?<![a-z])dsn(?![a-z])|"
    r"(?<![a-z])auth(?![a-z])|webhook|session_?id|refresh_?key|license_?key"
)
"""What is in such names, as a pattern."""
_SECRET_NAME = re.compile(rf"{SECRET_WORDS}|_key$|_pat$|_sig$", re.I)
_HARMLESS_NAME = re.compile(
    r"tokeniz|tokens?_?(?:embed|ids?|type|count|len|per|mixer|dim|size|budget|limit)|n_?tokens?|"
    r"(?:max|min|num|total|new|pad|eos|bos|mask|cls|sep|unk)_(?:new_)?tokens?|^tokens$|"
    r"token_?path$|_file$|_path$|auth_?(?:type|method)",
    re.I,
)


def sounds_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as one can tell."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None
