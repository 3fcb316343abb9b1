"""Hostile strings and a way to see whether they changed the structure of a drawing."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser

_CODE = ("alert(1)", "fetch('//x')", "parent.document.body.innerHTML=1")
_BREAKOUTS = ("", "'", '"', "'>", '">', "</title>", "</style>", "</pre>", "-->", "]]>", "\x00", "<")
_TEMPLATES = (
    "<script>{code}</script>",
    "<ScRiPt src=//x/y.js></sCrIpT>{code}",
    "<img src=x onerror={code}>",
    "<svg/onload={code}>",
    "<svg><animate onbegin={code} attributeName=x>",
    "<iframe srcdoc='<script>{code}</script>'>",
    "<a href='javascript:{code}'>x</a>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror={code}>",
    " onmouseover={code} x=",
    "<details open ontoggle={code}>",
    "javascript:{code}//",
    "<style>@import '//x'; *{{background:url(javascript:{code})}}</style>",
    "&lt;script&gt;{code}&lt;/script&gt;&#x3c;b&#x3e;",
)

PAYLOADS: tuple[str, ...] = (
    *(
        breakout + template.format(code=code)
        for breakout, template, code in itertools.product(_BREAKOUTS, _TEMPLATES, _CODE)
    ),
    "\u202e<b>gnp.exe\u202c</b>",
    "\x1b]8;;http://evil\x07<b>link</b>\x1b]8;;\x07",
    "<b>\ud800</b>",
    "＜script＞alert(1)＜/script＞",
    "</div></div></div></table></svg><h1>out</h1>",
    "<plaintext>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
)

SAFE_TAGS = frozenset(
    {"b", "bdi", "caption", "code", "details", "div", "i", "img", "li", "path", "pre", "span"}
    | {"summary", "svg", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
SAFE_ATTRIBUTES = frozenset(
    {"alt", "aria-hidden", "aria-label", "aria-valuemax", "aria-valuemin", "aria-valuenow", "d"}
    | {"fill", "preserveaspectratio", "role", "scope", "src", "stroke", "stroke-linecap"}
    | {"stroke-linejoin", "stroke-opacity", "stroke-width", "style", "title", "vector-effect"}
    | {"viewbox"}
)
_FREE_TEXT = frozenset({"alt", "aria-label"})
_VOID = frozenset({"img"})


class Structure(HTMLParser):
    """Elements and attributes of a fragment, without the text that users may choose."""

    def __init__(self, fragment: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.text: list[str] = []
        self.depth = 0
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        shown = tuple((name, None if name in _FREE_TEXT else value) for name, value in attrs)
        self.elements.append((tag, shown))
        self.depth += tag not in _VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.depth -= tag not in _VOID

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment appeared: {data!r}")

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    @property
    def attributes(self) -> set[str]:
        return {name for _, attrs in self.elements for name, _ in attrs}
