"""scripts/changed_sources.py: which C sources the full tier checks again, in a repository of the test's own."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/changed_sources.py"
FILES = {
    "CMakeLists.txt": "", "README.md": "", ".clang-tidy": "", "test.sh": "",
    "core/CMakeLists.txt": "", "core/text.h": "", "core/text.c": '#include "core/text.h"\n',
    "core/clock.h": "", "core/clock.c": '#include "core/clock.h"\n',
    "http/uri.h": '#include "core/text.h"\n', "http/uri.c": '#  include "http/uri.h"\n#include <stdio.h>\n',
    "api/CMakeLists.txt": "", "api/page.html": "", "api/page.c": '#include "api/made.h"\n',
    "tests/kit.h": "", "tests/unit/test_uri.c": '#include "http/uri.h"\n#include "../kit.h"\n',
    "tests/http/test_a.py": "",
}
PROGRAM = {"core/text.c", "core/clock.c", "http/uri.c", "api/page.c"}


class Repository:
    def __init__(self, root):
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)
        (root / "scripts").mkdir()
        shutil.copy(SCRIPT, root / "scripts")
        self.git("init", "-q")
        self.commit()
        assert self.run("--record").returncode == 0
        self.commit()

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def git(self, *args):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True,
                       capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a commit")

    def run(self, *args):
        return subprocess.run([sys.executable, "-B", self.root / "scripts/changed_sources.py", *args], text=True,
                              capture_output=True)

    def changed(self, *folders):
        """Return the sources of these folders, else of the program and the tests, that are to be checked."""
        done = self.run(*folders or ("core", "http", "api", "tests"))
        assert (done.returncode, done.stderr) == (0, ""), done
        return set(done.stdout.split())


@pytest.fixture
def repo(tmp_path):
    return Repository(tmp_path)


def test_nothing_changed(repo):
    assert repo.changed() == set()


@pytest.mark.parametrize("name, reached", [
    ("core/text.c", {"core/text.c"}),
    ("core/clock.h", {"core/clock.c"}),
    ("core/text.h", {"core/text.c", "http/uri.c", "tests/unit/test_uri.c"}),
    ("tests/kit.h", {"tests/unit/test_uri.c"}),
    ("core/CMakeLists.txt", {"core/text.c", "core/clock.c", "http/uri.c", "tests/unit/test_uri.c"}),
    ("api/page.html", {"api/page.c"}),
    ("CMakeLists.txt", {*PROGRAM, "tests/unit/test_uri.c"}),
    (".clang-tidy", {*PROGRAM, "tests/unit/test_uri.c"}),
    ("README.md", set()), ("test.sh", set()), ("tests/http/test_a.py", set()),
])
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_a_change_reaches_what_includes_it(repo, name, reached, committed):
    repo.write(name, FILES[name] + "\n")
    if committed:
        repo.commit()
    assert repo.changed() == reached


def test_folders(repo):
    repo.write("core/text.h", "\n")
    assert repo.changed("core") == {"core/text.c"} and repo.changed("http", "tests/") == {
        "http/uri.c", "tests/unit/test_uri.c"}


def test_new_and_removed_files(repo):
    repo.write("core/new.c", '#include "core/text.h"\n')
    (repo.root / "core/clock.h").unlink()
    (repo.root / "http/uri.c").unlink()
    assert repo.changed() == {"core/new.c", "core/clock.c"}


def test_a_header_that_hides_another(repo):
    """A compiler looks beside the source first."""
    repo.write("http/core/text.h", "")
    assert repo.changed() == {"http/uri.c", "tests/unit/test_uri.c"}


def test_a_commit_that_is_not_in_the_history(repo):
    """All sources are checked, as without a record."""
    record = repo.root / "scripts/analyzed_commit"
    for text in ("0" * 40, "no commit", ""):
        record.write_text(text)
        assert repo.changed() == {*PROGRAM, "tests/unit/test_uri.c"}, text
    record.unlink()
    assert repo.changed() == {*PROGRAM, "tests/unit/test_uri.c"}


@pytest.mark.parametrize("git", ["not a repository", "not there"])
def test_without_git(repo, git, monkeypatch):
    """All sources are checked, as in an unpacked archive."""
    if git == "not there":
        monkeypatch.setenv("PATH", "")
    else:
        shutil.rmtree(repo.root / ".git")
    assert repo.changed() == {*PROGRAM, "tests/unit/test_uri.c"}


def test_a_record_of_uncommitted_files_is_refused(repo):
    before = (repo.root / "scripts/analyzed_commit").read_text()
    repo.write("core/text.c", "\n")
    done = repo.run("--record")
    assert done.returncode == 1 and "commit them first" in done.stderr
    assert (repo.root / "scripts/analyzed_commit").read_text() == before
