"""Reads the HTML of a page into a tree, strictly: an end tag that does not fit is an error."""
import html.parser

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Element:
    """An element: its tag, its attributes, and its children, elements or texts."""

    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children = tag, attributes, parent, []

    def __getitem__(self, name):
        return self.attributes[name]

    def get(self, name):
        return self.attributes.get(name)

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def walk(self):
        """Yields the elements below, in the order of their start tags."""
        rest = self.children[::-1]
        while rest:
            child = rest.pop()
            if not isinstance(child, str):
                yield child
                rest.extend(child.children[::-1])

    def all(self, tag=None, **attributes):
        """Returns the elements below with this tag and these attributes; None: the attribute with any value. data_x
        stands for data-x, and class_ for class."""
        names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        found = [e for e in self.walk() if tag is None or e.tag == tag]
        for name, value in names.items():
            found = [e for e in found if name in e.attributes and value in (None, e.attributes[name])]
        return found

    def one(self, tag=None, **attributes):
        found = self.all(tag, **attributes)
        assert len(found) == 1, (tag, attributes, len(found))
        return found[0]


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Element("", {}, None)
        self.open = self.root

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), ("an attribute twice", tag, attrs)
        element = Element(tag, dict(attrs), self.open)
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_startendtag(self, tag, attrs):
        self.open.children.append(Element(tag, dict(attrs), self.open))

    def handle_endtag(self, tag):
        assert self.open.tag == tag, ("an end tag that does not fit", tag, self.open.tag)
        self.open = self.open.parent

    def handle_data(self, data):
        self.open.children.append(data)


def read_page(answer):
    """Returns the tree of an answer with a page, after the checks that hold for all pages."""
    assert answer.get("Content-Type") == "text/html; charset=utf-8", answer
    reader = Reader()
    reader.feed(answer.body.decode("utf-8"))
    reader.close()
    assert reader.open is reader.root, ("not closed", reader.open.tag)
    root = reader.root
    ids = [e["id"] for e in root.all(id=None)]
    assert len(ids) == len(set(ids)), sorted(ids)
    assert not root.all(style=None) and not [e for e in root.walk() for name in e.attributes if name.startswith("on")]
    assert all(e.get("src") and not e.text for e in root.all("script"))
    assert len(root.all("h1")) == 1 and root.one("main")["id"] == "main"
    for table in root.all("table"):
        assert table.one("caption").text and all(th["scope"] in ("col", "row") for th in table.all("th"))
    for svg in root.all("svg"):
        assert svg["role"] == "img" and svg["aria-label"]
    return root
