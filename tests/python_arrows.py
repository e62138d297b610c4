"""The arrows of the Python client: which of its modules may import which, and what modules keep for themselves.

A name that begins with one underscore belongs to the file that defines it. A file may read `x._name` only if x is self
or cls or super(), if x comes from a package outside of tensord, or if the file itself defines `_name`.
"""

import ast

PACKAGE = "clients/python/tensord"
# module at the top of the package -> its room. The rooms of the others are the folders that hold them; whatever is not
# named here is in "public".
ROOMS = {
    **dict.fromkeys(["_version", "address", "errors", "lock", "options"], "base"),
    **dict.fromkeys(["client", "lazy", "watching"], "client"),
}
BELOW = {"base", "net", "tensors", "rows", "publishing"}
# room -> the rooms that it may import, besides itself
MAY_USE = {
    "base": set(),
    "net": {"base"},
    "tensors": {"base", "net"},
    "rows": {"base", "net", "tensors"},
    "publishing": {"base", "net", "tensors"},
    "client": BELOW,
    "engines": BELOW | {"client"},
    "public": BELOW | {"client", "engines"},
}
# rooms that may use a part of another room only
ONLY = {("rows", "tensors"): {"tensors.dtypes"}}
FOLDERS = ("net", "tensors", "rows", "publishing", "engines")
CALLS = ("import_module", "__import__")  # functions that import
# public names of named tuples, which begin with an underscore so that a field may have any other name
TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def room_of(module):
    """The room of a module: "net" for net.http, "public" for dcp and for the package's __init__.py."""
    first = module.split(".")[0]
    return first if first in FOLDERS else ROOMS.get(first, "public")


def modules_of(folder):
    """The modules below a folder: name -> path. The name of a package's __init__.py is that of the package."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_own(name):
    """Whether a name is one of its file's own."""
    return name.startswith("_") and not name.startswith("__") and name not in TUPLES


class Imports:
    """The imports of a module, at any depth: `modules`, with the line of each; `names` of tensord's and `outside`,
    names of other packages or of their members."""

    def __init__(self, module, is_package, tree, modules):
        self._all, self._package = modules, module if is_package else module.rpartition(".")[0]
        self.modules, self.names, self.outside, self.faults = {}, set(), set(), []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._add_import(node, alias)
            elif isinstance(node, ast.ImportFrom):
                self._add_from(node)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in CALLS:
                self.faults.append((node.lineno, "a module that is imported by a call cannot be checked"))

    def _add_import(self, node, alias):
        first, _, rest = alias.name.partition(".")
        bound = alias.asname or first
        if first != "tensord":
            self.outside.add(bound)
            return
        self.names.add(bound)
        self.modules.setdefault(rest, node.lineno)

    def _add_from(self, node):
        names = {alias.asname or alias.name for alias in node.names}
        if node.level:
            parts = self._package.split(".") if self._package else []
            if node.level - 1 > len(parts):
                self.faults.append((node.lineno, "an import leads out of the package"))
                return
            source = ".".join(parts[: len(parts) - node.level + 1] + [node.module] * bool(node.module))
        elif node.module.split(".")[0] == "tensord":
            source = node.module.partition(".")[2]
        else:
            self.outside |= names
            return
        self.names |= names
        for alias in node.names:
            inner = f"{source}.{alias.name}".lstrip(".")
            if inner in self._all:
                self.modules.setdefault(inner, node.lineno)
                continue
            self.modules.setdefault(source, node.lineno)
            if is_own(alias.name):
                self.faults.append((node.lineno, f"{alias.name} belongs to {source or 'tensord'}"))


def defined_in(tree):
    """The names that a file defines with one underscore: functions, classes, variables, attributes that are set."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node):
    """Whether an expression is the object or the class of the method that it stands in."""
    if isinstance(node, ast.Call):
        node = node.func
        return isinstance(node, ast.Name) and node.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def root_of(node):
    """The name that an expression of attributes, indexes and calls begins with: "torch" for torch.Tensor._make(x)."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def foreign_names(tree, imports):
    """Yields the line and the text of each `x._name` that belongs to another file."""
    own = defined_in(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not is_own(node.attr) or is_self(node.value):
            continue
        root = root_of(node.value)
        if root not in imports.outside and (root in imports.names or node.attr not in own):
            yield node.lineno, ast.unparse(node)


def fault_of(module, used):
    """Returns the fault in an import of the module `used`; None if it is right."""
    room, target = room_of(module), room_of(used)
    if target == room:
        return None
    if target not in MAY_USE[room]:
        return f"{room} may not use {target}"
    if (room, target) in ONLY and used not in ONLY[room, target]:
        return f"{room} may use {', '.join(sorted(ONLY[room, target]))} of {target}, and not {used}"
    return None


def check(root):
    """All faults of the client under root, as lines for people, and what each module imports: name -> names."""
    modules = modules_of(root / PACKAGE)
    faults, uses = [], {}
    for module, path in modules.items():
        own = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = Imports(module, path.name == "__init__.py", tree, modules)
        found = list(imports.faults)
        for used, line in imports.modules.items():
            if used not in modules:
                found.append((line, f"tensord has no module {used}"))
            elif fault := fault_of(module, used):
                found.append((line, fault))
        found += [(line, f"{text} belongs to another module") for line, text in foreign_names(tree, imports)]
        faults += [f"{own}:{line}: {fault}" for line, fault in sorted(found)]
        label = f"tensord.{module}".rstrip(".")
        uses[label] = {f"tensord.{used}".rstrip(".") for used in imports.modules if used != module}
    return faults, uses
