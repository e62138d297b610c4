#!/usr/bin/env python3
"""Refuses phrases that readers have to read twice, in comments, messages and docs.

    scripts/check_words.py [--count] [FILE...]    without FILE: every file that Git knows

Reads comments and string literals of C and Python, comments of shell scripts and of CMake, and the prose of Markdown
(not its code). Prints FILE:LINE, the phrase and a better one; --count prints how many each file has. The exit status
is 1 if there is any. A line of code that needs a phrase, such as text from a standard, ends with the comment
"words: quoted".
"""

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

# What is refused, and what to write in its place.
PHRASES = [
    (r"(?<!there\s)(?:is|are|was|were) (?-i:none)\b", '"does not exist", "is not a ...", "unknown ..."'),
    (r"of which\b", "two sentences, or name the thing again"),
    (r"(?:has|have|had|which|that|who) left\b(?! out| over| open)", '"was evicted", "was closed", "remains"'),
    (r"(?:told|tells?|telling)\b", '"reports", "says", "shows", "returns"'),
    (r"(?:go|goes|went|going|gone) on\b", '"continues", "resumes"'),
    (r"(?<!-)(?:lies|lie|lay|lain)\b(?!-)", '"is", "stands", "starts at"'),
    (r"meanwhile\b", '"at the same time", "until then"'),
    (r"anew\b", '"again"'),
    (r"lookers?\b", '"poller"'),
    (r"whoever\b", '"the client that", "a program that"'),
    (r"(?:gives?|gave|given) back\b", '"releases", "returns"'),
    (r"(?:gets?|got) to know\b", '"learns"'),
]
# A phrase may be broken over two lines of a comment.
SPACE = r"[\s*]+"
REFUSED = [(re.compile(r"\b" + pattern.replace(" ", SPACE), re.IGNORECASE), better) for pattern, better in PHRASES]
# A comment or docstring that begins with these has no subject that a reader knows.
OPENING = re.compile(r"^(?:What|Whom?|Whose)\b(?!.*\?)")
OPENING_BETTER = 'a verb ("Returns", "Checks") or the name of the thing first'
QUOTED = "words: quoted"
C_PART = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def parts_of_c(text):
    """Yields (offset, text) of each comment and string literal, without the marks of a comment."""
    for match in C_PART.finditer(text):
        part = match[0]
        if part.startswith("/"):
            yield match.start(), re.sub(r"^/[/*]+|\*/$", lambda mark: " " * len(mark[0]), part)
        elif part.startswith('"') and not text[: match.start()].endswith("#include "):
            yield match.start(), part


def parts_of_python(text):
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    kinds = {tokenize.COMMENT, tokenize.STRING}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            part = re.sub(r"^[rbfRBF]*(?:\"\"\"|#)", lambda mark: " " * len(mark[0]), token.string)
            yield lines[token.start[0] - 1] + token.start[1], part


def parts_of_script(text):
    for match in re.finditer(r"(?m)(?:^|(?<=\s))#[^\n]*", text):
        yield match.start(), " " + match[0][1:]


def parts_of_markdown(text):
    """Yields the whole text, with code and addresses blanked."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    text = re.sub(r"(?ms)^ *```.*?^ *```", blank, text)
    text = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", blank, text)
    yield 0, text


READERS = {".c": parts_of_c, ".h": parts_of_c, ".py": parts_of_python, ".sh": parts_of_script,
           ".txt": parts_of_script, ".cmake": parts_of_script, ".md": parts_of_markdown}
LEFT_OUT = re.compile(r"^(?:tests/data/|tests/fuzz/corpus/|tests/requirements|scripts/check_words\.py)")


def findings(path, text):
    """Returns (line, phrase, better) of each phrase."""
    lines = text.splitlines()
    found = []
    for offset, part in READERS[path.suffix](text):
        hits = [(m.start(), m[0], better) for pattern, better in REFUSED for m in pattern.finditer(part)]
        opening = OPENING.match(part.strip()) if path.suffix != ".md" and not part.startswith('"') else None
        if opening:
            hits.append((0, opening[0], OPENING_BETTER))
        for start, phrase, better in hits:
            line = text.count("\n", 0, offset + start)
            if QUOTED not in lines[line]:
                found.append((line + 1, " ".join(phrase.split()), better))
    return sorted(set(found))


def main():
    arguments = sys.argv[1:]
    is_count = "--count" in arguments
    names = [a for a in arguments if a != "--count"]
    if not names:
        names = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    counts = Counter()
    checked = 0
    for name in sorted(names):
        path = Path(name)
        if path.suffix not in READERS or LEFT_OUT.match(name) or not path.is_file():
            continue
        checked += 1
        for line, phrase, better in findings(path, path.read_text(encoding="utf-8")):
            counts[name] += 1
            if not is_count:
                print(f"{name}:{line}: \"{phrase}\": write {better}")
    for name, count in counts.items() if is_count else ():
        print(f"{count:5} {name}")
    if counts:
        sys.exit(f"check_words.py: {sum(counts.values())} phrases to reword in {len(counts)} files")
    print(f"no phrase to reword in {checked} files")


if __name__ == "__main__":
    main()
