"""A verdict in one line, for warnings, refusals and records."""

from __future__ import annotations

from jupyter_ddl.spec.facts import Difference, EnvironmentVerdict

__all__ = ["difference_text", "verdict_line"]


def difference_text(each: Difference) -> str:
    """``numpy is 2.1.0 here, 2.0.2 on all workers``."""
    if "worker" in each.where:
        place = "lacks it" if each.other == "none" else f"has {each.other}"
        if each.where.startswith(("all", "workers")) or " of " in each.where:
            place = place.replace("lacks", "lack").replace("has", "have")
        seen = "is missing here" if each.kernel == "none" else f"is {each.kernel} here"
        return f"{each.what} {seen}, {each.where} {place}"
    seen = "is missing here" if each.kernel == "none" else f"is {each.kernel} here"
    return f"{each.what} {seen}, {each.where} asks for {each.other}"


def verdict_line(verdict: EnvironmentVerdict) -> str:
    """The worst difference, how many more there are, and what mends it; empty for ``same``."""
    if not verdict.differences:
        return ""
    first = verdict.differences[0]
    more = len(verdict.differences) - 1
    rest = f" (and {more} more: `%cluster env check`)" if more else ""
    mend = f"; {first.mend} mends it" if first.mend.startswith("`") else ""
    if first.mend and not mend:
        mend = f"; to mend it, {first.mend}"
    return f"{difference_text(first)}{rest}{mend}"
