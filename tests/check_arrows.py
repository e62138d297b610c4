#!/usr/bin/env python3
"""Fails when an #include runs against the arrows of docs/architecture.md, names a file that is not there, or is part of
a circle of modules or of folders; when a function is not defined in the source of the header that declares it, because
circles could hide there; when a header has another include guard than its path says; and when a folder has too many
sources or too many levels. The same for the modules of the Python client: which of them may import which, no circle,
and no module that uses another one's names with an underscore.

    check_arrows.py ROOT         checks the tree under ROOT
    check_arrows.py --self-test  checks that a wrong include is caught
"""

import pathlib
import re
import sys
import tempfile

import python_arrows

# room -> the rooms whose headers it may include, besides its own. A room is a folder of sources; a file in a folder
# that is not named here belongs to the folder above.
BASE = {"core", "parser", "storage"}
CATALOG = {"catalog"} | {f"catalog/{inner}" for inner in ("model", "names", "sandbox", "dataset", "digests",
                                                           "checkpoints", "events", "removed", "scan")}
LOWER = {"core", "parser", "storage", "slicing", "work", "catalog/upstream", "catalog/publish", "http",
         "rank", "rank/values"} | CATALOG
CALL = LOWER | {"api/call"}
MAY_USE = {
    "core": set(),
    "parser": {"core"},
    "storage": {"core"},
    "storage/fetch": {"core", "storage"},
    "slicing": BASE,
    "work": {"core"},
    "catalog/model": BASE,
    "catalog/names": BASE | {"catalog/model"},
    "catalog/sandbox": BASE | {"catalog/model"},
    "catalog/dataset": BASE | {"work", "catalog/model", "catalog/names", "catalog/sandbox"},
    "catalog/digests": BASE | {"work", "catalog/model"},
    "catalog/checkpoints": BASE | {"catalog/model"},
    "catalog/removed": BASE | {"catalog/model"},
    "catalog/events": BASE | {"catalog/model", "catalog/names", "catalog/dataset"},
    "catalog/scan": BASE | CATALOG - {"catalog"},
    "catalog": BASE | CATALOG,
    "catalog/remote": {"core", "storage", "storage/fetch"},
    "catalog/upstream": BASE | CATALOG | {"storage/fetch", "catalog/remote"},
    "catalog/publish": BASE | CATALOG | {"storage/fetch"},
    "catalog/delta": BASE | {"catalog/model"},
    "http": {"core", "storage"},
    "rank/values": {"core", "parser"},
    "rank": BASE | CATALOG | {"slicing", "work", "http", "rank/values"},
    "api/call": LOWER,
    "api/html": CALL,
    "api/proto": {"core"},
    "api/native": CALL | {"api/html", "api/proto"},
    "api/hub": CALL | {"api/html"},
    "api/oci": CALL,
    "api/rpc": CALL | {"api/native", "api/proto"},
    "api/s3": CALL,
    "api": CALL | {"api/native", "api/hub", "api/oci", "api/rpc", "api/s3"},  # the table of facades
    "server/host": {"core", "storage"},
    "server/config": {"core", "storage", "http", "server/host"},
    "server/log": {"core", "http"},
    "server/net": CALL | {"api", "server/config"},
    "server/serving": CALL | {"api", "server/host", "server/config", "server/log", "server/net"},
    "server/mhd": CALL | {"api", "server/config", "server/net", "server/serving"},
    "server/h2": CALL | {"api", "server/config", "server/net", "server/serving"},
    # `inspect` prints the manifest of the native interface
    "server/cmd": CALL | {"api", "api/native", "storage/fetch", "catalog/remote", "catalog/delta", "server/host",
                           "server/config", "server/log", "server/net", "server/serving", "server/mhd", "server/h2"},
    # the table of commands
    "server": {"catalog/sandbox", "http", "server/config", "server/host", "server/mhd", "server/cmd"},
}
# Headers that declare one handler or command each from several sources, for the table that lists them. The modules of
# these sources count as used by the header, and not as its users, so they may not call each other's functions.
TABLES = {"api/hub/hub_handlers.h", "api/hub/hub_writers.h", "api/native/publish_handlers.h", "api/native/routes.h",
          "api/s3/s3_handlers.h", "server/cmd/commands.h"}
FOLDERS = sorted({room.split("/")[0] for room in MAY_USE})
# the most that one folder may hold: C sources, and levels of modules that include one another (see levels_of)
MOST_SOURCES, MOST_LEVELS = 25, 8
# system headers that one room alone may use
OWNED = {"microhttpd.h": "server/mhd", "nghttp2/nghttp2.h": "server/h2", "curl/curl.h": "storage/fetch"}

INCLUDE = re.compile(r'^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import)\b(.*)$', re.MULTILINE)
COMMENT = re.compile(r'/\*.*?\*/', re.DOTALL)
# Headers that the build makes. They include the header of their maker alone.
MADE = {"api/html/templates.h", "api/proto/schema.h"}
QUOTED = re.compile(r'\s*"([^"]+)"')
SYSTEM = re.compile(r'\s*<([^>]+)>')
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
DIRECTIVE = re.compile(r'^[ \t]*#.*$', re.MULTILINE)
FUNCTION = re.compile(r'\b(td_\w+)\s*\(')
GUARD = re.compile(r'\s*#ifndef (\w+)\n#define \1\n')


def room_of(name):
    """The room that a file belongs to: "api/hub" for api/hub/hub_call.h, "parser" for parser/zip/zip.h."""
    folders = name.split("/")[:-1]
    while folders and "/".join(folders) not in MAY_USE:
        folders.pop()
    return "/".join(folders)


def module_of(name):
    """A header and its source are one module."""
    return name.rsplit(".", 1)[0]


def guard_of(name):
    """The include guard of a header: TD_API_HUB_HUB_CALL_H for api/hub/hub_call.h."""
    return "TD_" + re.sub(r"\W", "_", name).upper()


def faults_of_guards(root):
    """Yields the faults in the guards of all headers, those of the tests too; packages of npm have others."""
    for folder in [*FOLDERS, "tests", "bench"]:
        for path in sorted((root / folder).rglob("*.h")):
            name = path.relative_to(root).as_posix()
            if "node_modules" in path.parts:
                continue
            guard = GUARD.match(COMMENT.sub("", path.read_text(encoding="utf-8")))
            if not guard or guard[1] != guard_of(name):
                yield f"{name}: its include guard is not {guard_of(name)}"


def faults_of_line(root, own, rest):
    """Yields the faults of one include of the file `own`. `rest` is the line after "#include"."""
    room = room_of(own)
    if system := SYSTEM.match(rest):
        name = system.group(1)
        if name in OWNED and OWNED[name] != room:
            yield f"<{name}> is for {OWNED[name]}/ alone"
        if name.split("/")[0] in FOLDERS and (root / name).exists():
            yield f"<{name}> is ours: use quotes"
        return
    quoted = QUOTED.match(rest)
    if not quoted:
        yield "an include that is neither \"...\" nor <...> cannot be checked"
        return
    name = quoted.group(1)
    target = room_of(name)
    if not target or ".." in name.split("/"):
        yield f'"{name}" is not named from the root of the tree, as "core/json.h" is'
    elif target != room and target not in MAY_USE[room]:
        yield f"{room}/ may not use {target}/"
    elif not (root / name).is_file() and name not in MADE:
        yield f'"{name}" does not exist'


def functions_of(text):
    """The functions with external linkage that a text without comments declares, and those that it defines."""
    text = DIRECTIVE.sub("", LITERAL.sub("0", text))
    outer, depth = [], 0
    for c in text:  # what stands in braces becomes {}
        depth -= c == "}"
        if depth == 0:
            outer.append(c)
        depth += c == "{"
    declared, defined = set(), set()
    for statement in re.findall(r"[^;}]*[;}]", "".join(outer)):
        name = FUNCTION.search(statement)
        if name and "=" not in statement and not re.match(r"\s*(static|typedef)\b", statement):
            (declared if statement.endswith(";") else defined).add(name[1])
    return declared, defined


def misplaced(declared, defined, texts):
    """Faults, and the modules of the sources behind each of TABLES. declared, defined: function -> file. texts: file ->
    text."""
    faults, sources = [], {}
    for name in sorted(declared.keys() & defined.keys()):
        header, source = declared[name], defined[name]
        if header in TABLES:
            sources.setdefault(module_of(header), set()).add(module_of(source))
            behind = {defined[other] for other in defined if declared.get(other) == header} - {source}
            faults += [f"{user}: calls {name} of {source}, which {header} declares for its table" for user in behind
                       if re.search(rf"\b{name}\s*\(", texts[user])]
        elif module_of(header) != module_of(source):
            faults.append(f"{source}: defines {name}, which {header} declares: a function belongs into the source of "
                          "its header")
    return faults, sources


def circles(uses):
    """The circles among modules, each as a sorted list. uses: module -> the modules that it includes.

    Tarjan's algorithm with a stack of its own, as a circle may be long."""
    number, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in sorted(uses):
        if start in number:
            continue
        work = [(start, iter(sorted(uses[start])))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            module, rest = work[-1]
            following = next((each for each in rest if each in uses), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == number[module]:
                    members = []
                    while not members or members[-1] != module:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    if len(members) > 1:
                        found.append(sorted(members))
            elif following not in number:
                number[following] = low[following] = len(number)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(uses[following]))))
            elif following in on_stack:
                low[module] = min(low[module], number[following])
    return sorted(found)


def folder_of(module):
    """The folder that holds a module: "parser/zip" for parser/zip/zip_directory."""
    return module.rpartition("/")[0]


def folder_circles(uses):
    """The circles among folders, of any depth, each as a sorted list of folders. uses: module -> the modules that it
    includes."""
    folders = {}
    for module, used in uses.items():
        own = folders.setdefault(folder_of(module), set())
        own.update(folder_of(each) for each in used if folder_of(each) != folder_of(module))
    return circles(folders)


def levels_of(folder, uses):
    """The number of levels in a folder: a module stands one level above the highest that it includes. A folder inside
    counts as one module. Modules outside do not count."""
    def part_of(module):
        """The member of the folder that the module is, or is in; None outside."""
        inside = module.removeprefix(f"{folder}/")
        return None if inside == module else inside.split("/")[0]

    below = {}
    for module, used in uses.items():
        if part := part_of(module):
            below.setdefault(part, set()).update({part_of(each) for each in used} - {None, part})
    levels = 0
    while level := {part for part, used in below.items() if not used & below.keys()}:
        levels += 1
        below = {part: used for part, used in below.items() if part not in level}
    return levels  # without the modules of a circle, which is a fault of its own


def faults_of_sizes(sources, uses):
    """Yields the faults in the sizes of folders. sources: the names of all C sources. uses: as in folder_circles."""
    for folder in sorted({folder_of(module) for module in uses}):
        count = sum(folder_of(each) == folder for each in sources)
        if count > MOST_SOURCES:
            yield f"{folder}/ has {count} C sources: {MOST_SOURCES} is the most"
        levels = levels_of(folder, uses)
        if levels > MOST_LEVELS:
            yield f"{folder}/ has {levels} levels of modules: {MOST_LEVELS} is the most"


def check(root):
    """All faults under root, as lines for people."""
    faults = list(faults_of_guards(root))
    uses = {}
    declared, defined, texts = {}, {}, {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]")):
            own = path.relative_to(root).as_posix()
            used = uses.setdefault(module_of(own), set())
            # comments become blanks of the same shape, so line numbers stay
            text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text(encoding="utf-8"))
            text = text.replace("\\\n", "  ")
            for include in INCLUDE.finditer(text):
                line = text.count("\n", 0, include.start(1)) + 1
                for fault in faults_of_line(root, own, include.group(1)):
                    faults.append(f"{own}:{line}: {fault}")
                if (quoted := QUOTED.match(include.group(1))) and module_of(quoted.group(1)) != module_of(own):
                    used.add(module_of(quoted.group(1)))
            declarations, definitions = functions_of(text)
            if own.endswith(".h"):
                declared.update(dict.fromkeys(declarations, own))
            else:
                defined.update(dict.fromkeys(definitions, own))
                texts[own] = text
    more_faults, sources = misplaced(declared, defined, texts)
    faults += more_faults
    for table, modules in sources.items():
        uses[table] |= modules - {table}
        for module in modules:
            uses[module].discard(table)
    faults += faults_of_sizes(texts, uses)
    for members in folder_circles(uses):
        faults.append(f"folders include each other in a circle: {', '.join(members)}")
    python_faults, python_uses = python_arrows.check(root)
    faults += python_faults
    for members in circles({**uses, **python_uses}):
        faults.append(f"modules include each other in a circle: {', '.join(members)}")
    return faults


def write_file(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Tree:
    """A folder with a header a.h in every room, and with the modules of a small Python client. A case adds its files
    for one check. A header without #ifndef gets its guard."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        modules = {name: "" for name in ("__init__.py", "errors.py", "lock.py", "client.py", "lazy.py", "dcp.py")}
        for room in python_arrows.FOLDERS:
            modules |= {f"{room}/__init__.py": "", f"{room}/a.py": ""}
        modules["tensors/dtypes.py"] = ""
        self.base = {f"{python_arrows.PACKAGE}/{name}": text for name, text in modules.items()}
        self.base |= {name: self.guarded(name, "") for name in [*(f"{room}/a.h" for room in MAY_USE), "api/api.h"]}
        for name, text in self.base.items():
            write_file(self.root / name, text)

    @staticmethod
    def guarded(name, text):
        if not name.endswith(".h") or "#ifndef" in text:
            return text
        return "#ifndef {0}\n#define {0}\n{1}#endif\n".format(guard_of(name), text)

    def faults(self, files):
        """The faults of the tree when it holds these files (name -> text), too."""
        for name, text in files.items():
            write_file(self.root / name, self.guarded(name, text))
        faults = check(self.root)
        for name in files:
            if name in self.base:
                write_file(self.root / name, self.base[name])
            else:
                (self.root / name).unlink()
        return faults

    def python_faults(self, files):
        return self.faults({f"{python_arrows.PACKAGE}/{name}": text for name, text in files.items()})


def self_test():
    """Returns how many cases are judged wrongly."""
    # (file, text, is it a fault)
    cases = [
        ("core/a.c", '#include "core/a.h"\n#include <stdio.h>\n', False),
        ("parser/a.c", '#include "core/a.h"\n', False),
        ("storage/a.c", '#include "core/a.h"\n', False),
        ("slicing/a.c", '#include "parser/a.h"\n#include "storage/a.h"\n', False),
        ("catalog/a.c", '#include "parser/a.h"\n#include "storage/a.h"\n', False),
        ("catalog/digests/a.c", '#include "work/a.h"\n', False),
        ("work/a.c", '#include "core/a.h"\n', False),
        ("work/a.c", '#include "catalog/model/a.h"\n', True),
        ("work/a.c", '#include "storage/a.h"\n', True),
        ("storage/a.c", '#include "work/a.h"\n', True),
        ("http/a.c", '#include "core/a.h"\n#include "storage/a.h"\n', False),
        ("rank/a.c", '#include "catalog/a.h"\n#include "slicing/a.h"\n#include "http/a.h"\n', False),
        ("api/a.c", '#include "catalog/a.h"\n#include "rank/a.h"\n', False),
        ("api/hub/a.c", '#include "api/call/a.h"\n#include "api/html/a.h"\n', False),
        ("api/api.c", '#include "api/hub/a.h"\n#include "api/s3/a.h"\n#include "api/native/a.h"\n', False),
        ("server/mhd/a.c", '#include "api/a.h"\n#include "api/api.h"\n#include <microhttpd.h>\n', False),
        ("server/mhd/a.c", '#include "server/net/a.h"\n#include "server/serving/a.h"\n', False),
        ("server/h2/a.c", '#include "server/serving/a.h"\n#include <nghttp2/nghttp2.h>\n', False),
        ("server/mhd/a.c", '#include <nghttp2/nghttp2.h>\n', True),
        ("server/cmd/a.c", '#include "server/mhd/a.h"\n#include "api/api.h"\n', False),
        ("server/a.c", '#include "server/cmd/a.h"\n', False),
        ("core/b.h", "/* A header. */\n#ifndef TD_CORE_B_H\n#define TD_CORE_B_H\n#endif\n", False),
        ("core/b.h", "#ifndef TD_PARSER_B_H\n#define TD_PARSER_B_H\n#endif\n", True),
        ("core/b.h", "#ifndef TD_CORE_B_H\n#define TD_CORE_C_H\n#endif\n", True),
        ("tests/unit/b.h", "#ifndef TD_TESTS_B_H\n#define TD_TESTS_B_H\n#endif\n", True),
        ("server/net/a.c", '#include "server/mhd/a.h"\n', True),
        ("server/net/a.c", "#include <microhttpd.h>\n", True),
        ("server/host/a.c", '#include "http/a.h"\n', True),
        ("server/config/a.c", '#include "server/net/a.h"\n', True),
        ("server/mhd/a.c", '#include "server/cmd/a.h"\n', True),
        ("core/a.c", '/* #include "api/a.h" */\n', False),
        ("core/a.c", '/*\n#include "api/a.h"\n*/\n', False),
        ("core/a.c", '#include "parser/a.h"\n', True),
        ("core/a.h", '#include "server/a.h"\n', True),
        ("core/sub/a.c", '#include "parser/a.h"\n', True),
        ("parser/a.c", '#include "storage/a.h"\n', True),
        ("parser/a.c", '  #  include  "catalog/a.h" // a comment\n', True),
        ("parser/a.c", '#/**/include "catalog/a.h"\n', True),
        ("parser/a.c", '#include \\\n"catalog/a.h"\n', True),
        ("storage/a.c", '#include "parser/a.h"\n', True),
        ("slicing/a.c", '#include "catalog/a.h"\n', True),
        ("storage/fetch/a.c", '#include "storage/a.h"\n#include <curl/curl.h>\n', False),
        ("catalog/remote/a.c", '#include "storage/fetch/a.h"\n', False),
        ("storage/a.c", '#include "storage/fetch/a.h"\n', True),
        ("storage/fetch/a.c", '#include "catalog/a.h"\n', True),
        ("catalog/remote/a.c", "#include <curl/curl.h>\n", True),
        ("api/a.c", '#include "storage/fetch/a.h"\n', True),
        ("catalog/scan/a.c", '#include "catalog/checkpoints/a.h"\n#include "catalog/dataset/a.h"\n', False),
        ("catalog/upstream/a.c", '#include "catalog/scan/a.h"\n#include "catalog/a.h"\n', False),
        ("catalog/publish/a.c", '#include "catalog/model/a.h"\n#include "storage/fetch/a.h"\n', False),
        ("catalog/publish/a.c", '#include "catalog/upstream/a.h"\n', True),
        ("catalog/model/a.c", '#include "catalog/names/a.h"\n', True),
        ("catalog/names/a.c", '#include "catalog/dataset/a.h"\n', True),
        ("catalog/checkpoints/a.c", '#include "catalog/scan/a.h"\n', True),
        ("catalog/scan/a.c", '#include "catalog/a.h"\n', True),
        ("catalog/a.c", '#include "slicing/a.h"\n', True),
        ("catalog/a.c", '#include "api/a.h"\n', True),
        ("http/a.c", '#include "catalog/a.h"\n', True),
        ("http/a.c", '#include "api/a.h"\n', True),
        ("rank/a.c", '#include "api/a.h"\n', True),
        ("api/a.c", '#include "server/a.h"\n', True),
        ("api/call/a.c", '#include "api/hub/a.h"\n', True),
        ("api/call/a.c", '#include "api/api.h"\n', True),
        ("api/hub/a.c", '#include "api/s3/a.h"\n', True),
        ("api/hub/a.c", '#include "api/api.h"\n', True),
        ("api/html/a.c", '#include "api/native/a.h"\n', True),
        ("api/s3/a.c", '#include "api/html/a.h"\n', True),
        ("server/mhd/a.c", '#include "api/hub/a.h"\n', True),
        ("api/a.c", "#include <microhttpd.h>\n", True),
        ("core/a.c", "#include <microhttpd.h>\n", True),
        ("server/mhd/a.c", '#include "../api/a.h"\n', True),
        ("server/mhd/a.c", '#include "api/../core/a.h"\n', True),
        ("server/mhd/a.c", '#include "a.h"\n', True),
        ("server/mhd/a.c", '#include "api/absent.h"\n', True),
        ("server/mhd/a.c", "#include <api/a.h>\n", True),
        ("server/mhd/a.c", "#include HEADER\n", True),
    ]
    # (files, the circle or None)
    trees = [
        ({"core/b.h": '#include "core/c.h"\n', "core/c.h": ""}, None),
        ({"core/b.h": '#include "core/c.h"\n', "core/c.h": '#include "core/b.h"\n'}, "core/b, core/c"),
        ({"core/b.h": "", "core/b.c": '#include "core/c.h"\n', "core/c.h": "", "core/c.c": '#include "core/b.h"\n'},
         "core/b, core/c"),
        ({"api/hub/b.h": '#include "api/hub/c.h"\n', "api/hub/c.h": '#include "api/hub/d.h"\n',
          "api/hub/d.c": '#include "api/hub/b.h"\n', "api/hub/d.h": ""}, "api/hub/b, api/hub/c, api/hub/d"),
        ({"api/native/routes.h": "void td_b(void);\n", "api/native/native.c": '#include "api/native/routes.h"\n',
          "api/native/b.c": '#include "api/native/routes.h"\nvoid td_b(void) {}\n'}, None),
        ({"api/native/routes.h": "void td_b(void);\n", "api/native/native.c": '#include "api/native/routes.h"\n',
          "api/native/native.h": "", "api/native/b.c": '#include "api/native/native.h"\nvoid td_b(void) {}\n'},
         "api/native/b, api/native/native, api/native/routes"),
    ]
    # (files, the circle of folders or None)
    folder_trees = [
        ({"core/b.c": '#include "core/json/b.h"\n', "core/json/b.h": '#include "core/a.h"\n'}, "core, core/json"),
        ({"core/b.c": '#include "core/json/b.h"\n', "core/json/b.h": "", "core/json/c.c": '#include "core/a.h"\n'},
         "core, core/json"),
        ({"core/b.c": '#include "core/json/b.h"\n', "core/json/b.h": ""}, None),
        ({"core/json/b.c": '#include "core/a.h"\n'}, None),
        ({"parser/zip/a.c": '#include "parser/names/a.h"\n', "parser/names/a.h": "", "parser/zip/b.h": "",
          "parser/b.c": '#include "parser/zip/b.h"\n', "parser/names/b.c": '#include "parser/a.h"\n'},
         "parser, parser/names, parser/zip"),
    ]
    steps = {f"core/s{i}.h": f'#include "core/s{i + 1}.h"\n' for i in range(1, MOST_LEVELS)} | {
        f"core/s{MOST_LEVELS}.h": ""}
    sources = {f"core/s{i}.c": "" for i in range(1, MOST_SOURCES + 1)}
    # (files, the size that is a fault or None)
    sizes = [
        (steps, None),
        (steps | {"core/top.c": '#include "core/s1.h"\n'}, f"core/ has {MOST_LEVELS + 1} levels of modules"),
        (steps | {"core/in/b.c": '#include "core/s2.h"\n', "core/in/b.h": ""}, None),
        (steps | {"core/in/b.c": '#include "core/s1.h"\n', "core/in/b.h": ""},
         f"core/ has {MOST_LEVELS + 1} levels of modules"),
        (steps | {"core/s1.c": '#include "core/in/b.h"\n', "core/in/b.h": '#include "core/in/c.h"\n',
                  "core/in/c.h": ""}, None),
        (sources, None),
        (sources | {"core/in/b.c": ""}, None),
        (sources | {"core/s.c": ""}, f"core/ has {MOST_SOURCES + 1} C sources"),
    ]
    # (files, does a function stand in the wrong source)
    places = [
        ({"core/b.h": "bool td_b(int x);\n", "core/b.c": "bool td_b(int x)\n{\n    return x > 0;\n}\n"}, False),
        ({"core/b.h": "bool td_b(int x);\n", "core/c.c": "bool td_b(int x)\n{\n    return x > 0;\n}\n"}, True),
        ({"core/b.h": "bool td_b(int x)\n    __attribute__((pure));\nbool td_c(void);\n",
          "core/b.c": "bool td_b(int x) {}", "core/c.c": "bool td_c(void) {}"}, True),
        ({"core/b.h": "struct td_b { void (*call)(int); };\nstatic inline int td_b(void) { return td_c(); }\n",
          "core/c.h": "int td_c(void);", "core/c.c": "int td_c(void) {}"}, False),
        ({"core/b.h": "#define TD_B(x) td_c(x)\nextern const int td_d;\n",
          "core/c.c": "int td_c(int x) { char c = '{'; }"}, False),
        ({"core/b.h": "int td_b(void);", "core/c.c": "static int c(void) { return td_b(); }\nint x[] = {1};\n"}, False),
        ({"api/native/routes.h": "void td_b(void);\n", "api/native/b.c": "void td_b(void) {}"}, False),
        ({"api/native/routes.h": "void td_b(void);\nvoid td_c(void);\n", "api/native/b.c": "void td_b(void) {}",
          "api/native/c.c": "void td_c(void) { td_b(); }"}, True),
    ]
    # (file of the Python client, text, is it a fault)
    python_cases = [
        ("net/b.py", "import json\nfrom .. import errors\nfrom ..lock import Lock\nfrom . import a\n", False),
        ("tensors/b.py", "from ..net import a\nfrom ..net.a import get\n", False),
        ("rows/b.py", "from ..tensors import dtypes\nfrom ..net.a import get\n", False),
        ("engines/b.py", "from ..client import Client\nfrom ..lazy import deferred\nfrom ..net.a import b\n", False),
        ("client.py", "from .rows.a import Dataset\nfrom tensord.net import a\nimport tensord.tensors.a\n", False),
        ("dcp.py", "from .engines import a\nfrom . import client\n", False),
        ("net/b.py", "from ..tensors import a\n", True),
        ("net/b.py", "from tensord.tensors.a import b\n", True),
        ("net/b.py", "import tensord.client\n", True),
        ("net/b.py", "def b():\n    from ..client import Client\n", True),
        ("net/b.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..rows import a\n", True),
        ("net/b.py", "from .. import client\n", True),
        ("net/b.py", "from .. import Client\n", True),
        ("net/b.py", "import importlib\nimportlib.import_module('tensord.client')\n", True),
        ("net/b.py", "from .absent import b\n", True),
        ("net/b.py", "from .... import b\n", True),
        ("tensors/b.py", "from ..rows import a\n", True),
        ("rows/b.py", "from ..tensors.a import Model\n", True),
        ("rows/b.py", "from ..client import Client\n", True),
        ("rows/b.py", "from ..engines import a\n", True),
        ("client.py", "from .engines import a\n", True),
        ("client.py", "from . import dcp\n", True),
        ("engines/b.py", "from .. import dcp\n", True),
        ("errors.py", "from .net import a\n", True),
        ("net/b.py", "from .a import _get\n", True),
        ("net/b.py", "from os import _exit\n", False),
        ("net/b.py", "from .a import get as _get\n", False),
        ("net/b.py", "from .. import _version\n", True),  # no such module here
        ("net/b.py", "import os\nos._exit(0)\nos.path._joinrealpath('', '', {})\n", False),
        ("net/b.py", "from . import a\na._get()\n", True),
        ("net/b.py", "from .a import A\nclass B(A):\n    _own = A._own\n", True),
        ("net/b.py", "class B:\n    def b(self, c):\n        return self._b + c._c\n", True),
        ("net/b.py", "class B:\n    def b(self):\n        return self.c._c\n", True),
        ("net/b.py", "class B:\n    def b(self):\n        self.c._c = 1\n", True),
        ("net/b.py", "def b(call):\n    return call()._c\n", True),
        ("net/b.py", "class B:\n    def a(self):\n        self._b = 1\n    def b(self, c):\n        c._b()\n", False),
        ("net/b.py", "class B:\n    def _b(self):\n        pass\n    def b(self, c):\n        return c._b()\n", False),
        ("net/b.py", "class B:\n    @classmethod\n    def b(cls):\n        return cls._c, super()._d\n", False),
        ("net/b.py", "def b(pair):\n    return pair._replace(x=1), pair.__dict__\n", False),
    ]
    # (files of the Python client, the circle or None)
    python_trees = [
        ({"net/b.py": "from . import a\n"}, None),
        ({"net/a.py": "from . import b\n", "net/b.py": "from . import a\n"}, "tensord.net.a, tensord.net.b"),
        ({"net/a.py": "from .b import c\n", "net/b.py": "def b():\n    from .a import d\n"},
         "tensord.net.a, tensord.net.b"),
        ({"client.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .lazy import c\n",
          "lazy.py": "import tensord.client\n"}, "tensord.client, tensord.lazy"),
        ({"net/__init__.py": "from .a import b\n", "net/a.py": "from . import b\n"}, "tensord.net, tensord.net.a"),
    ]
    def circle_of(kind, members):
        return [] if members is None else [f"{kind} include each other in a circle: {members}"]

    wrong = 0

    def judge(case, faults, is_right):
        nonlocal wrong
        if not is_right:
            wrong += 1
            print(f"{case}: {faults or 'no fault'}", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        for check_files, known in ((tree.python_faults, python_cases), (tree.faults, cases)):
            for name, text, is_fault in known:
                faults = check_files({name: text})
                judge(f"{name}: {text!r}", faults, bool(faults) == is_fault)
        for check_files, kind, known in ((tree.python_faults, "modules", python_trees), (tree.faults, "modules", trees),
                                         (tree.faults, "folders", folder_trees)):
            for files, members in known:
                faults = check_files(files)
                judge(files, faults, faults == circle_of(kind, members))
        for files, size in sizes:
            faults = tree.faults(files)
            judge(files, faults, [fault.split(": ")[0] for fault in faults] == [size] * (size is not None))
        for files, is_fault in places:
            faults = tree.faults(files)
            judge(files, faults, bool(faults) == is_fault)
    return wrong


def main(arguments):
    if arguments == ["--self-test"]:
        return 1 if self_test() else 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0])
    if not (root / "core").is_dir():
        print(f"{root} holds no core/", file=sys.stderr)
        return 2
    faults = check(root)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
