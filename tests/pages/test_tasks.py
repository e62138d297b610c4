"""Tasks of people who come to the first page and know nothing else: each takes at most three clicks."""
import models
import visits


def open_model(page, id):
    page.go("click", f"#models tr[data-model='{id}'] a")


def test_find_a_tensor(see):
    with see("/") as page:
        open_model(page, models.MOE)
        page.go("click", "a[data-link=tensors] >> nth=0")
        page.act("type", "input#filter", "layers.7.block_sparse_moe.experts.99.w2")
        page.wait("() => document.querySelector('#tensors').dataset.matched === '1'")
        page.go("click", "#tensors tr[data-tensor] a")
        assert page.path() == visits.tensor(models.MOE, "model.layers.7.block_sparse_moe.experts.99.w2.weight")


def test_size_on_two_gpus_and_the_line_for_them(see):
    with see("/") as page:
        open_model(page, models.LLAMA)
        page.go("click", "a[data-link=ranks] >> nth=0")
        page.act("selectOption", "select#engine", "vllm")
        page.act("fill", "input#tp", "2")
        page.wait("() => document.querySelectorAll('#ranks tr[data-rank]').length === 2")
        page.click("button[data-copy=curl]")
        page.wait("() => /copied/i.test(document.querySelector('[role=status]').textContent)")
        assert "/tp2/rank-0.safetensors" in page.evaluate("() => navigator.clipboard.readText()")


def test_why_a_file_is_refused(see):
    """The first page says so of one file, the model's page of each."""
    with see("/") as page:
        assert "cut.safetensors" in page.one(f"#models tr[data-model='{models.BROKEN}']")
        open_model(page, models.BROKEN)
        assert "not JSON" in page.one("#errors [data-file='not-json.safetensors']")


def test_what_changed_between_two_steps(see):
    with see("/") as page:
        open_model(page, models.STEPS[1])
        page.go("click", "a[data-link=compare] >> nth=0")
        field = page.evaluate("() => ['a', 'b'].find(n => !document.querySelector(`main [name=${n}]`).value) ?? null")
        if field:
            page.act("fill", f"main [name={field}]", models.STEPS[0])
            page.act("press", f"main [name={field}]", "Enter")
        page.wait("() => document.querySelectorAll('#diff tr[data-tensor]').length === 5")
