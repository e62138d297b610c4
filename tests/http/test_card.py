"""The card of a model on its page: what becomes of the Markdown of a README.md, and that nothing else becomes of it."""
import os

import pytest

from harness import age, release_binary, tensor, write_by_hand
from page_reader import Reader

ELEMENTS = {"section", "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "hr", "br",
            "em", "strong", "del", "a", "img", "table", "thead", "tbody", "tr", "th", "td", "div"}
ATTRIBUTES = {"a": {"href", "rel", "title"}, "img": {"src", "alt", "loading", "title"}, "ol": {"start"},
              "pre": {"tabindex"}, "div": {"class", "tabindex"}, "th": {"scope", "align"}, "td": {"align"},
              **{f"h{level}": {"id"} for level in range(2, 7)}}
CARD = """---
license: mit
---
# A model *here*

See [the docs](docs/a.md#b "title"), [usage](#a-model-here), <https://example.org/x>, [mail](mailto:a@example.org).

- [x] done
- [ ] open

| a | b |
| --- | --: |
| `c` | ~~d~~ |

![picture](images/a b.png) ![](images/c.png) ![badge](https://example.org/badge.svg)

```python
x = "<b>"
```
"""
HOSTILE = """# <script>alert(1)</script> " onclick="x

<img src=x onerror=alert(1)> <meta http-equiv=refresh content=0;url=//example.org> <form action=//example.org>
</section></main><iframe srcdoc=x></iframe>

[a](javascript:alert(1)) [a](JaVa&#115;cript:x) [a](java&Tab;script:x) [a](%6aavascript:x) [a](<java script:x>)
[a](vbscript:x) [a](data:text/html,x) [a](file:///etc/passwd) [a](//example.org) [a](/etc/passwd) [a](../../x)
[a](b/%2e%2e/%2e%2e/x) [a](\\\\\\\\example.org) <javascript:alert(1)> ![a](data:image/png;base64,AA) [a](http:x)
"""


def serve(start, tmp_path, cards, **options):
    for name, card in cards.items():
        write_by_hand(tmp_path / name / "model.safetensors", [tensor("w", "F32", [2])])
        (tmp_path / name / "README.md").write_bytes(card if isinstance(card, bytes) else card.encode())
        age(tmp_path / name)
    return start(tmp_path, *options.pop("args", ()), **options)


def page_of(server, name):
    answer = server.get(f"/models/{name}/", {"Accept": "text/html"})
    assert answer.status == 200
    reader = Reader()
    reader.feed(answer.body.decode())
    reader.close()
    assert reader.open is reader.root, ("not closed", reader.open.tag)
    ids = [element["id"] for element in reader.root.all(id=None)]
    assert len(ids) == len(set(ids)), ids
    return reader.root


def card_of(server, name):
    """The card's element, after a check of all in it."""
    card = page_of(server, name).one("section", id="card")
    for element in card.walk():
        assert element.tag in ELEMENTS, element.tag
        assert set(element.attributes) <= ATTRIBUTES.get(element.tag, set()), (element.tag, element.attributes)
    for link in card.all("a"):
        href = link["href"]
        foreign = href.lower().startswith(("http://", "https://", "mailto:"))
        assert foreign or href.startswith((f"/{name}/resolve/main/", "/local/", "#card-")), href
        assert (link.get("rel") == "noreferrer nofollow noopener") == foreign, href
    return card


# shows: security.md content-card
def test_a_card(start, tmp_path):
    server = serve(start, tmp_path, {"org/model": CARD})
    for name in ("docs/a.md", "images/a b.png", "images/c.png"):
        path = tmp_path / "org/model" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    age(tmp_path)
    assert server.post("/rescan", b"").status == 200
    card = card_of(server, "org/model")
    heading = card.one("h2")
    assert (heading.text, heading["id"]) == ("A model here", "card-a-model-here")
    assert [link["href"] for link in card.all("a")] == [
        "/org/model/resolve/main/docs/a.md#b", "#card-a-model-here", "https://example.org/x", "mailto:a@example.org",
        "https://example.org/badge.svg"]
    assert "license" not in card.text and 'x = "<b>"' in card.one("pre").text
    assert [item.text for item in card.all("li")] == ["\u2611 done", "\u2610 open"]
    assert [image["loading"] for image in card.all("img")] == ["lazy"]
    for address, content in ((card.all("a")[0]["href"], b"docs/a.md"), (card.one("img")["src"], b"images/c.png")):
        assert server.get(address.partition("#")[0]).body == content


# shows: security.md content-card
def test_hostile_cards(start, tmp_path):
    cards = {"m": HOSTILE, "deep": "> " * 1000 + "- " * 1000 + "x", "nul": b"# a\0<b>", "latin": b"# \xe4 <b>",
             "wide": "|a" * 10000 + "|\n" + "|---" * 10000 + "|\n" + "|b\n" * 5000, "line": "a" * 1000000,
             "uses": '[a]: b "' + "c" * 50000 + '"\n\n' + "[a] " * 20000}
    server = serve(start, tmp_path, cards)
    for name in cards:
        card = card_of(server, name)
        size = len(server.get(f"/models/{name}/", {"Accept": "text/html"}).body)
        assert size < 2_300_000, (name, size)
        if name in ("nul", "latin"):
            assert "<b>" in card.one("pre").text
    card = card_of(server, "m")
    assert not card.all("a") and not card.all("img") and "<script>" in card.text


def test_a_card_is_made_by_the_process_that_is_idle(start, tmp_path):
    """Cards have no process of their own before they need one."""
    server = serve(start, tmp_path, {"a": "# a", "b": "# b"})
    assert server.gauge("tensord_parse_workers") == 1
    for name in ("a", "b"):
        assert card_of(server, name).one("h2").text == name
        assert server.gauge("tensord_parse_workers") == 1


# shows: security.md content-card
@pytest.mark.parametrize("word", ["spin", "crash", "eat", "socket"])
def test_a_card_that_takes_over_its_parser(start, tmp_path, word):
    """The page says why it has no card, and the next card is made by another process."""
    binary = release_binary().with_name("tensord-hostile")
    assert os.access(binary, os.X_OK), f"{binary} is missing: build the target tensord-hostile beside tensord"
    server = serve(start, tmp_path, {"bad": f"{word}-", "good": "# fine"}, binary=binary,
                   args=("--parse-timeout", "1", "--parse-memory", 128 << 20))
    page = page_of(server, "bad")
    assert not page.all("section", id="card") and "the parser" in page.text
    assert card_of(server, "good").one("h2").text == "fine"
