"""Turns templates and assets into C: compile_templates.py TEMPLATES ASSETS NAME OUT

ASSETS is "-" where there are none. Writes OUT/NAME.h, which sources include as "NAME.h", and OUT/NAME.c.

A template is HTML with these marks:

    {{name}}          a slot: text. Characters that do not print are shown as escapes
    {{pre:name}}      text of several lines, within <pre>
    {{bdi:name}}      a name from a stranger, isolated from the text around it, and cut in the middle if it is long
    {{attr:name}}     text in the value of an attribute
    {{path:name}}     percent-encoded, in the path of a link; '/' stays
    {{query:name}}    percent-encoded, in the query of a link
    {{link:name}}     a whole link within this server, which is encoded already
    {{card:name}}     HTML that the writer of cards has made
    {{#name}} ... {{/name}}   a section: repeated for each of its rows. Sections may be nested
    {{>name}}         the template NAME.html, here
    {{asset:name}}    the address of an asset
    {{! text }}       nothing

A mark in a place where its form does not protect the page is an error: a slot within a tag's name, an attribute's name,
an attribute without quotes, an attribute that holds a script or a style, or the text of <script>, <style>, a comment;
a link that begins with a slot which is no whole link; a section that begins and ends in different places.
"""
import hashlib
import re
import sys
from pathlib import Path

MARK = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
FORMS = ("text", "pre", "bdi", "attr", "path", "query", "link", "card")
OF_LINKS = {"href", "src", "action", "formaction"}
FORBIDDEN = {"style", "srcdoc", "srcset", "http-equiv", "content", "ping", "background", "poster", "data", "xlink:href",
             "target", "rel", "id", "name"}
RAW = ("script", "style", "textarea", "noscript", "iframe", "template", "xmp", "plaintext")
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
MOST_DEPTH = 3  # TD_PAGE_DEPTH


class Wrong(Exception):
    """A fault of a template."""


class Place:
    """Follows the HTML of a template, and says what may stand where it is.

    state: "text", "tag" (a tag's name), "in" (between attributes), "gap" (the same, and a blank or the tag's end must
    follow), "name" (an attribute's name), "value" (a value in quotes), "bare" (a value without quotes), "comment", or
    "raw" (the text of an element in RAW)."""

    def __init__(self):
        self.state, self.tag, self.attribute, self.value, self.is_end = "text", "", "", "", False

    def at_section(self, name):
        """Begins or ends a section here, which may be between the attributes of a tag. Returns where this is."""
        if self.state in ("in", "name", "gap") or (self.state == "tag" and self.tag != ""):
            self.state = "gap"
        elif self.state != "text":
            raise Wrong(f"the section {name} begins or ends within {self.state}")
        return (self.state, self.tag if self.state == "gap" else "")

    def feed(self, text):
        for at, c in enumerate(text):
            rest = text[at:]
            if self.state == "gap":
                if not (c.isspace() or c in "/>"):
                    raise Wrong("a name that a section divides")
                self.state = "in"
            if self.state == "text" and c == "<":
                if rest.startswith("<!--"):
                    self.state, self.value = "comment", ""
                else:
                    self.state, self.tag, self.is_end = "tag", "", False
            elif self.state == "comment":
                self.value = (self.value + c)[-3:]
                self.state = "text" if self.value == "-->" else "comment"
            elif self.state == "raw":
                self.value += c
                if self.value.lower().endswith(f"</{self.tag}"):
                    self.state, self.is_end = "in", True
            elif self.state == "tag":
                if c == "/" and self.tag == "":
                    self.is_end = True
                elif c == ">":
                    self.leave_tag()
                elif c.isspace():
                    self.state = "in"
                elif c != "/":
                    self.tag += c.lower()
            elif self.state in ("in", "name"):
                if c == ">":
                    self.leave_tag()
                elif c == "=":
                    self.state, self.value = "bare", ""
                elif c.isspace() or c == "/":
                    self.state = "in"
                else:
                    self.attribute = c.lower() if self.state == "in" else self.attribute + c.lower()
                    self.state = "name"
            elif self.state == "bare":
                if c == '"' and self.value == "":
                    self.state = "value"
                elif c == "'":
                    raise Wrong("a value in single quotes")
                elif c == ">":
                    self.leave_tag()
                elif c.isspace():
                    self.state = "in"
                else:
                    self.value += c
            elif self.state == "value":
                if c == '"':
                    self.state = "in"
                else:
                    self.value += c

    def leave_tag(self):
        self.state, self.value = "text", ""
        if self.tag in RAW and not self.is_end:
            self.state = "raw"

    def slot(self, form):
        """Raises Wrong if a slot of this form must not stand here."""
        if self.state == "text":
            if form not in ("text", "pre", "bdi", "card"):
                raise Wrong(f"the form {form} in text")
            return
        if self.state != "value":
            places = {"tag": "the name of a tag", "in": "a tag", "gap": "a tag", "name": "the name of an attribute",
                      "bare": "a value without quotes", "comment": "a comment", "raw": f"<{self.tag}>"}
            raise Wrong("a slot in " + places[self.state])
        if self.attribute.startswith("on") or self.attribute in FORBIDDEN:
            raise Wrong(f"a slot in the attribute {self.attribute}")
        if self.attribute not in OF_LINKS:
            if form != "attr":
                raise Wrong(f"the form {form} in the attribute {self.attribute}")
            return
        if form == "link":
            if self.value != "":
                raise Wrong("the form link after other text of the link")
        elif form not in ("path", "query"):
            raise Wrong(f"the form {form} in a link")
        elif not re.match(r"(/[^/]|/\Z|\?|#|\0)", self.value):
            raise Wrong("a link must begin with a constant '/', '?' or '#', or with the form link")
        elif form == "query" and not re.search(r"[?#\0]", self.value):
            raise Wrong("the form query in the path of a link")
        elif form == "path" and "?" in self.value:
            raise Wrong("the form path in the query of a link")
        self.value += "\0" if form == "link" else "x"


class Template:
    """One template: constant text, its parts, and the names of its slots and sections."""

    def __init__(self, name, source, sources, assets):
        self.name, self.sources, self.assets = name, sources, assets
        self.text, self.parts, self.slots, self.sections = b"", [], [], []
        self.open, self.place = [], Place()
        self.read(source, 0)
        if self.open:
            raise Wrong(f"the section {self.open[-1][0]} does not end")
        if self.place.state != "text":
            raise Wrong("the template ends within a tag")

    def read(self, source, depth):
        if depth > 8:
            raise Wrong("templates within templates without an end")
        at = 0
        for mark in MARK.finditer(source):
            self.constant(source[at:mark.start()])
            self.mark(mark.group(1), depth)
            at = mark.end()
        self.constant(source[at:])

    def constant(self, text):
        if "{{" in text or "}}" in text:
            raise Wrong("braces that are no mark")
        self.place.feed(text)
        data = text.encode("utf-8")
        if data and self.parts and self.parts[-1][0] == "CONSTANT":
            kind, start, length = self.parts[-1]
            self.parts[-1] = (kind, start, length + len(data))
        elif data:
            self.parts.append(("CONSTANT", len(self.text), len(data)))
        self.text += data

    def mark(self, mark, depth):
        if mark.startswith("!"):
            return
        if mark.startswith(">"):
            if mark[1:] not in self.sources:
                raise Wrong(f"there is no template {mark[1:]}")
            self.read(self.sources[mark[1:]], depth + 1)
        elif mark.startswith("#"):
            self.begin(mark[1:])
        elif mark.startswith("/"):
            self.end(mark[1:])
        elif mark.startswith("asset:"):
            if mark[6:] not in self.assets:
                raise Wrong(f"there is no asset {mark[6:]}")
            self.constant(self.assets[mark[6:]])
        else:
            form, _, name = mark.rpartition(":")
            form = form or "text"
            if form not in FORMS or not NAME.match(name):
                raise Wrong(f"the mark {{{{{mark}}}}}")
            self.place.slot(form)
            if name not in self.slots:
                self.slots.append(name)
            self.parts.append((form.upper(), self.slots.index(name), 0))

    def begin(self, name):
        if not NAME.match(name) or len(self.open) == MOST_DEPTH or name in self.sections:
            raise Wrong(f"the section {name} has a bad name, is within too many others, or is there twice")
        self.sections.append(name)
        self.open.append((name, len(self.parts), self.place.at_section(name)))
        self.parts.append(("SECTION", self.sections.index(name), 0))

    def end(self, name):
        if not self.open or self.open[-1][0] != name:
            raise Wrong(f"the section {name} ends where another one does")
        _, at, key = self.open.pop()
        if self.place.at_section(name) != key:
            raise Wrong(f"the section {name} ends in another place than it begins")
        self.parts.append(("END", self.sections.index(name), 0))
        self.parts[at] = ("SECTION", self.sections.index(name), len(self.parts) - 1)


def strip_indents(text):
    """Removes the blanks at the beginnings of lines, except within <pre>."""
    pieces = re.split(r"(<pre\b.*?</pre>)", text, flags=re.DOTALL)
    return "".join(piece if i % 2 else re.sub(r"^ +", "", piece, flags=re.MULTILINE) for i, piece in enumerate(pieces))


def array_of(data):
    return "\n".join("    " + ", ".join(map(str, data[at:at + 24])) + "," for at in range(0, len(data), 24)) or "    0,"


def read_assets(folder):
    """Returns (name, bytes, hash) of each asset, in the order of their names."""
    assets = []
    for path in sorted(Path(folder).iterdir()):
        if path.suffix in TYPES:
            data = path.read_bytes()
            assets.append((path.name, data, hashlib.sha256(data).hexdigest()[:16]))
    return assets


def write(templates, assets, name, out):
    guard = "TD_" + re.sub("[^a-z0-9]", "_", name).upper() + "_H"
    words = [f"/* Made by compile_templates.py. */\n#ifndef {guard}\n#define {guard}\n\n#include \"api/html/page.h\"\n"]
    parts = [f"/* Made by compile_templates.py. */\n#include \"{name}.h\"\n"]
    for template in templates:
        upper = template.name.upper()
        for kind, names in (("slot", template.slots), ("section", template.sections)):
            if names:
                listed = "".join(f"    TD_{kind.upper()}_{upper}_{name.upper()},\n" for name in names)
                words.append(f"enum td_{template.name}_{kind} {{\n{listed}}};")
        words.append(f"extern const struct td_template td_template_{template.name};\n")
        listed = "\n".join(f"    {{TD_PART_{kind}, {number}, {extra}}}," for kind, number, extra in template.parts)
        parts.append(f"static const unsigned char {template.name}_text[] = {{\n{array_of(template.text)}\n}};\n"
                     f"static const struct td_part {template.name}_parts[] = {{\n{listed}\n}};\n"
                     f"const struct td_template td_template_{template.name} = {{\n    {template.name}_text, "
                     f"{template.name}_parts, {len(template.parts)}}};\n")
    for i, (_, data, _) in enumerate(assets):
        parts.append(f"static const unsigned char asset_{i}[] = {{\n{array_of(data)}\n}};\n")
    listed = "\n".join(f'    {{"{file}", "{TYPES[Path(file).suffix]}", "{tag}", asset_{i}, {len(data)}}},'
                       for i, (file, data, tag) in enumerate(assets))
    if assets:
        parts.append(f"#include \"api/html/asset.h\"\nconst struct td_asset td_assets[] = {{\n{listed}\n}};\n"
                     f"const size_t td_asset_count = {len(assets)};")
    words.append("#endif")
    for suffix, text in ((".h", words), (".c", parts)):
        Path(out, name + suffix).parent.mkdir(parents=True, exist_ok=True)
        Path(out, name + suffix).write_text("\n".join(text) + "\n", encoding="ascii")


def main():
    folder, asset_folder, name, out = sys.argv[1:]
    assets = [] if asset_folder == "-" else read_assets(asset_folder)
    links = {file: f"/-/{file}?v={tag}" for file, _, tag in assets}
    sources = {path.stem: strip_indents(path.read_text(encoding="utf-8"))
               for path in sorted(Path(folder).glob("*.html"))}
    templates = []
    for stem, text in sources.items():
        if stem.startswith("part_"):  # these stand within others alone
            continue
        try:
            templates.append(Template(stem, text, sources, links))
        except Wrong as fault:
            sys.exit(f"{folder}/{stem}.html: {fault}")
    write(templates, assets, name, out)


if __name__ == "__main__":
    main()
