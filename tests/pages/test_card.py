"""The card of a model: its README as a part of the page."""
import models
import visits


def test_the_card(see):
    """The README as Markdown: headings one level down, a table, a picture of the model's, foreign links marked."""
    with see(visits.MODEL["model"]) as page:
        assert page.all("#card h2") == ["Llama of 300 tensors"] and page.all("#card h3") == ["Use"]
        assert page.all("#card td") == ["MMLU", "25.1"]
        assert "from transformers import AutoModel" in page.one("#card pre")
        assert page.one("#card strong") == "tests"
        page.evaluate("() => document.querySelector('#card img').scrollIntoView()")
        page.wait("() => document.querySelector('#card img').naturalWidth === 320")
        assert page.one("#card img", "alt") == "A picture"
        foreign = "#card a[href^='https://example.com']"
        assert {"noreferrer", "nofollow", "noopener"} <= set(page.one(foreign, "rel").split())
        assert page.count(f"#card a[href='/{models.LLAMA}/resolve/main/config.json']") == 1
        said = page.one("main")
        assert "apache-2.0" in said and "license: apache" not in said, "front matter is facts"


def test_a_hostile_card_does_nothing(see):
    with see(visits.MODEL["model-hostile"]) as page:
        kinds = page.evaluate("() => [...new Set([...document.links].map(a => a.protocol))]")
        assert set(kinds) <= {"http:", "https:", "mailto:"}
        own = page.evaluate("() => [...document.images].every(i => new URL(i.src).origin === location.origin)")
        assert own, "no picture is of another host"
        assert page.count("#card form, #card input[name], #card meta, #card style, #card script, #card iframe") == 0
        assert page.evaluate("() => document.getElementById('main').tagName") == "MAIN"
        ids = page.all("#card [id]", "id")
        assert ids and all(id.startswith("card-") for id in ids)
