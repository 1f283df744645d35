"""A page as a browser would take it apart."""

from html.parser import HTMLParser

EVIL = "</script><script>alert(1)</script><img src=http://example.org/x> & \"quoted\" 'text'"
_VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Elements, the text that a reader sees, the tables, what plots say, and where tags do not close as they opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.seen = self.hovered = ""
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.faults += [f"{tag} is never closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        if len(dict(attrs)) < len(attrs):
            self.faults.append(f"{tag} has an attribute twice")
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if "svg" not in self._open:
            self.faults.append(f"{tag} cannot close itself")

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"{tag} closes at {self.getpos()} what it did not open")

    def handle_data(self, data):
        if self._open and self._open[-1] == "title" and "svg" in self._open:
            self.hovered += f"{data}\n"
        elif "style" not in self._open and "script" not in self._open:
            self.seen += data
            if {"td", "th"} & set(self._open):
                self.tables[-1][-1][-1] += data

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, given in self.elements for key, value in given.items() if key == name]


def assert_opens_offline(text: str) -> Page:
    """The page of a text, if it is well formed, loads nothing, runs nothing, and forbids both."""
    page = Page(text)
    assert page.faults == []
    assert {"script", "link", "iframe", "object", "embed", "base", "img", "form"}.isdisjoint(page.tags())
    assert page.attributes("src") == page.attributes("srcset") == page.attributes("style") == []
    assert [value for value in page.attributes("href") if ":" in value or value.startswith("/")] == []
    assert not [name for name in (key for _, given in page.elements for key in given) if name.startswith("on")]
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    return page
