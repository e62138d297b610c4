"""api/html/compile_templates.py: what may stand where in a template of the pages, and what becomes of it."""
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "api/html/compile_templates.py"
spec = importlib.util.spec_from_file_location("compile_templates", SCRIPT)
compiler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compiler)


def parts_of(text, others=()):
    return compiler.Template("page", text, {"page": text, **dict(others)}, {"a.css": "/-/a.css?v=1"})


@pytest.mark.parametrize("text, fault", [
    ("<{{tag}}>", "the name of a tag"),
    ("</{{tag}}>", "the name of a tag"),
    ("<a {{attr:x}}>", "a slot in a tag"),
    ("<a hre{{attr:x}}=\"\">", "the name of an attribute"),
    ("<a title={{attr:x}}>", "without quotes"),
    ("<a title='{{attr:x}}'>", "single quotes"),
    ("<a title=\"{{x}}\">", "the form text in the attribute title"),
    ("<a title=\"{{path:x}}\">", "the form path in the attribute title"),
    ("<a onclick=\"{{attr:x}}\">", "the attribute onclick"),
    ("<a OnClick=\"{{attr:x}}\">", "the attribute onclick"),
    ("<p style=\"{{attr:x}}\">", "the attribute style"),
    ("<iframe srcdoc=\"{{attr:x}}\">", "the attribute srcdoc"),
    ("<meta http-equiv=\"{{attr:x}}\">", "the attribute http-equiv"),
    ("<meta content=\"{{attr:x}}\">", "the attribute content"),
    ("<p id=\"{{attr:x}}\">", "the attribute id"),
    ("<a href=\"{{attr:x}}\">", "the form attr in a link"),
    ("<a href=\"{{path:x}}\">", "must begin with a constant"),
    ("<a href=\"//{{path:x}}\">", "must begin with a constant"),
    ("<a href=\"https:{{path:x}}\">", "must begin with a constant"),
    ("<a href=\"/models/{{link:x}}\">", "the form link after other text"),
    ("<a href=\"/models/{{query:x}}\">", "the form query in the path"),
    ("<a href=\"/models/?a={{path:x}}\">", "the form path in the query"),
    ("<script>{{x}}</script>", "<script>"),
    ("<SCRIPT>{{x}}</SCRIPT>", "<script>"),
    ("<style>{{x}}</style>", "<style>"),
    ("<!-- {{x}} -->", "a comment"),
    ("{{attr:x}}", "the form attr in text"),
    ("{{raw:x}}", "the mark"),
    ("{{X}}", "the mark"),
    ("{{ x }}", "the mark"),
    ("{{x", "braces"),
    ("x}}", "braces"),
    ("{{#a}}", "does not end"),
    ("{{#a}}{{/b}}", "ends where another one does"),
    ("{{/a}}", "ends where another one does"),
    ("{{#a}}{{/a}}{{#a}}{{/a}}", "is there twice"),
    ("{{#a}}{{#b}}{{#c}}{{#d}}{{/d}}{{/c}}{{/b}}{{/a}}", "too many"),
    ("{{#a}}<p {{/a}}>", "another place"),
    ("<p{{#a}}>{{/a}}", "another place"),
    ("<{{#a}}p{{/a}}>", "within tag"),
    ("<s{{#a}}cript{{/a}}>", "a name that a section divides"),
    ("<p title=\"{{#a}}x{{/a}}\">", "within value"),
    ("{{#a}}<script>{{/a}}</script>", "within raw"),
    ("<p", "within a tag"),
    ("{{>none}}", "there is no template none"),
    ("{{asset:none}}", "there is no asset none"),
])
def test_what_does_not_protect_the_page_is_refused(text, fault):
    with pytest.raises(compiler.Wrong, match=re.escape(fault)):
        parts_of(text)


@pytest.mark.parametrize("text, parts", [
    ("a{{x}}b", ["CONSTANT a", "TEXT x", "CONSTANT b"]),
    ("<title>{{x}} - y</title>", ["CONSTANT <title>", "TEXT x", "CONSTANT  - y</title>"]),
    ("{{! a }}b{{!c}}d", ["CONSTANT bd"]),
    ("<a href=\"/m/{{path:x}}/v?q={{query:y}}\">", ["CONSTANT <a href=\"/m/", "PATH x", "CONSTANT /v?q=", "QUERY y",
                                                    "CONSTANT \">"]),
    ("<a href=\"{{link:x}}?q={{query:y}}\">", ["CONSTANT <a href=\"", "LINK x", "CONSTANT ?q=", "QUERY y",
                                               "CONSTANT \">"]),
    ("<p title=\"{{attr:x}}\">{{x}}", ["CONSTANT <p title=\"", "ATTR x", "CONSTANT \">", "TEXT x"]),
    ("{{#a}}<p{{#b}} hidden{{/b}}>{{x}}{{/a}}", ["SECTION a", "CONSTANT <p", "SECTION b", "CONSTANT  hidden", "END b",
                                                 "CONSTANT >", "TEXT x", "END a"]),
    ("{{asset:a.css}}", ["CONSTANT /-/a.css?v=1"]),
    ("{{card:x}}", ["CARD x"]),
])
def test_parts(text, parts):
    template = parts_of(text)
    shown = []
    for kind, number, extra in template.parts:
        names = template.sections if kind in ("SECTION", "END") else template.slots
        shown.append(kind + " " + (template.text[number:number + extra].decode() if kind == "CONSTANT" else
                                   names[number]))
    assert shown == parts
    for i, (kind, number, extra) in enumerate(template.parts):
        if kind == "SECTION":
            assert template.parts[extra][:2] == ("END", number) and extra > i


def test_templates_within_templates():
    assert parts_of("{{>b}}", {"b": "x{{>c}}y", "c": "z"}.items()).text == b"xzy"
    with pytest.raises(compiler.Wrong, match="without an end"):
        parts_of("{{>b}}", {"b": "{{>b}}"}.items())


def test_the_build_fails_on_a_fault(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "t/page.html").write_text("<p style=\"{{attr:x}}\">")
    run = subprocess.run([sys.executable, SCRIPT, "t", "a", "made/out", "."], cwd=tmp_path, capture_output=True,
                         text=True)
    assert run.returncode == 1 and run.stderr == "t/page.html: a slot in the attribute style\n", run
    assert not (tmp_path / "made").exists()
