"""Tasks of people who come to the first page and know nothing else. Each takes at most three clicks: a click into a
field counts, what is typed there does not."""
import contextlib
import re

import pytest

import models
import visits


class Person:
    """Somebody at the first page, whose clicks are counted."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    def follow(self, selector):
        """Click on a link, the first one of several, and wait for the page that it leads to."""
        self.clicks += 1
        self.page.go("click", f"{selector} >> nth=0")

    def press(self, selector):
        """Click on a button or into a field."""
        self.clicks += 1
        self.page.click(selector)

    def write(self, selector, text):
        """Click into a field, and type in place of what is there."""
        self.press(selector)
        self.page.press("Control+A")
        self.page.act("keyboard.type", text)

    def open_model(self, id):
        self.follow(f"#models tr[data-model='{id}'] a")


@pytest.fixture(params=[1280, 360])
def person(request, see):
    with contextlib.ExitStack() as stack:
        someone = Person(stack.enter_context(see("/", width=request.param)))
        yield someone
        assert someone.clicks <= 3


def test_find_a_tensor(person):
    """Its row has the type, the shape and the size; Enter on its link opens its page."""
    page = person.page
    person.open_model(models.MOE)
    person.follow("a[data-link=tensors]")
    person.write("input#filter", "layers.7.block_sparse_moe.experts.99.w2")
    page.wait("() => document.querySelector('#tensors').dataset.matched === '1'")
    assert page.one("#tensors tr[data-tensor] [data-col=shape]") == "[16,8]"
    page.tab_to("#tensors tr[data-tensor] a")
    page.go("keyboard.press", "Enter")
    assert page.path() == visits.tensor(models.MOE, "model.layers.7.block_sparse_moe.experts.99.w2.weight")


def test_size_on_four_gpus(person, srv):
    """The size of each rank's file, as the server sends it."""
    page = person.page
    person.open_model(models.LLAMA)
    person.follow("a[data-link=ranks]")
    person.write("input#tp", "4")
    page.wait("() => document.querySelectorAll('#ranks tr[data-rank]').length === 4")
    paths = [f"/models/{models.LLAMA}/shards/vllm/tp4/rank-{rank}.safetensors" for rank in range(4)]
    assert [int(n) for n in page.all("#ranks tr[data-rank]", "data-bytes")] == [srv.head(p).length for p in paths]
    assert all(re.search("[0-9] [KM]iB", row) for row in page.all("#ranks tr[data-rank]"))


def test_the_command_for_a_rank(person):
    page = person.page
    person.open_model(models.LLAMA)
    person.follow("a[data-link=ranks]")
    person.press("button[data-copy=curl]")
    page.wait("() => /copied/i.test(document.querySelector('[role=status]').textContent)")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("curl ") and f"{models.LLAMA}/shards/vllm/tp2/rank-0.safetensors" in copied


def test_why_a_file_is_refused(person):
    """The first page says so of one file, the model's page of each."""
    page = person.page
    assert "cut.safetensors" in page.one(f"#models tr[data-model='{models.BROKEN}']")
    person.open_model(models.BROKEN)
    assert "not JSON" in page.one("#errors [data-file='not-json.safetensors']")


def test_what_changed_between_two_steps(person):
    """The page of the later one lists its versions, each with a link that compares."""
    page = person.page
    person.open_model(models.STEPS[1])
    person.follow("#versions a[href^='/compare']")
    assert page.count("#diff tr[data-tensor]") == 5
    assert (page.one("main [name=a]", "value"), page.one("main [name=b]", "value")) == models.STEPS
