"""Makers of events and hostile texts serve here, too."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
for _folder in (_TESTS / "events", _TESTS / "views"):
    sys.path.append(str(_folder))
