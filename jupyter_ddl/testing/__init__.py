"""Tests and stand-ins for authors of plug-ins, and for this package's own tests; they need pytest.

``verbs``, ``samplers``, ``pruners``, ``strategies`` and ``backends`` hold what every plug-in of the
kind has to keep: subclass the contract, override one fixture, run pytest.
"""

import contextlib

with contextlib.suppress(ImportError):  # what has no tests in it works without pytest
    import pytest

    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{name}"
            for name in ("verbs", "samplers", "pruners", "strategies", "backends")
        )
    )
