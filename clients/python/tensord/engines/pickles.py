"""Reads pickles as data: nothing is imported, resolved or called.

`read_plain` accepts plain values: numbers, texts, booleans, None, and lists and tuples of plain values. `read_records`
also accepts the other values that torch writes into `.metadata`, as records of names and arguments. Both read the
binary opcodes of protocols 2 to 5, as Lib/pickletools.py of CPython 3.11 describes them. Time and memory are in
proportion to the length of the pickle: each opcode adds at most one value, and shared values stay shared.
"""
from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List

from ..errors import printable

MAX_PLAIN_OPCODES = 2_000_000  # of one value; some of them cost 100 bytes of memory
MAX_MEMBERS = 64  # nested objects, when members are looked up


class NotReadable(ValueError):
    """A pickle is damaged, or holds a value that is not accepted. The message says which."""


class Name:
    """A global: the names of a module and of something in it."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name


class Record:
    """A call in the pickle, stored as data and never made, with the state that the pickle sets on its result."""

    __slots__ = ("callable", "args", "state")

    def __init__(self, callable: Any, args: Any):
        self.callable, self.args, self.state = callable, args, None

    def is_a(self, name: str) -> bool:
        """Returns whether the called global has this name, in any module."""
        return isinstance(self.callable, Name) and self.callable.name == name

    def member(self, name: str) -> Any:
        """Returns an attribute of the state; None without one."""
        return self.state.get(name) if isinstance(self.state, Pairs) else None


class Pairs:
    """A dict, as the list of its items: keys are not hashed, since an attacker could choose colliding ones."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: List[Any] = []  # key, value, key, value ...

    def get(self, key: str) -> Any:
        """Returns the value of the last item with this key; None without one, or if the dict has more than 64 items."""
        if len(self.items) > 2 * MAX_MEMBERS:
            return None
        for at in range(len(self.items) - 2, -1, -2):
            if type(self.items[at]) is str and self.items[at] == key:
                return self.items[at + 1]
        return None


def read_plain(data: bytes) -> Any:
    """Returns the plain value in a pickle.

    Raises NotReadable for any other pickle, and for one of more than 2,000,000 opcodes.
    """
    return _Machine(data, _PLAIN, MAX_PLAIN_OPCODES).run()


def read_records(data: bytes) -> Any:
    """Returns the value of a pickle, with globals as Name, calls as Record and dicts as Pairs. Raises NotReadable."""
    return _Machine(data, _RECORDS, len(data)).run()


class _Machine:
    """Runs the opcodes of one pickle."""

    def __init__(self, data: bytes, opcodes: Dict[int, Callable[["_Machine"], None]], most: int):
        self.data, self.opcodes, self.most, self.at = data, opcodes, most, 0
        self.stack: List[Any] = []
        self.marks: List[int] = []  # the stack's depth at each MARK
        self.memo: Dict[int, Any] = {}

    def run(self) -> Any:
        """Returns the value at the pickle's STOP. Raises NotReadable."""
        data, opcodes = self.data, self.opcodes
        try:
            for _ in range(self.most):
                code = data[self.at]
                self.at += 1
                if code == _STOP:
                    return self.pop()
                found = opcodes.get(code)
                if found is None:
                    raise NotReadable(_refusal(code))
                found(self)
        except (IndexError, KeyError):
            raise NotReadable("its pickle is damaged") from None
        raise NotReadable(f"its pickle has more than {self.most} opcodes")

    def take(self, count: int) -> bytes:
        """Returns the next bytes. Raises NotReadable if there are fewer."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise NotReadable("its pickle is cut off")
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, size: int) -> int:
        """Returns the next bytes as an unsigned number."""
        return int.from_bytes(self.take(size), "little")

    def pop(self) -> Any:
        """Removes and returns the top of the stack. Raises IndexError if there is no value above the last mark."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError
        return self.stack.pop()

    def top(self) -> Any:
        """Returns the top of the stack. Raises IndexError if there is no value above the last mark."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError
        return self.stack[-1]

    def pop_mark(self) -> List[Any]:
        """Removes the last mark, and removes and returns all values above it."""
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values


# ---- opcodes of values without parts

def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(make(machine))


def _text(size: int) -> Callable[[_Machine], None]:
    def make(machine: _Machine) -> str:
        try:
            return str(machine.take(machine.number(size)), "utf-8", "surrogatepass")  # as pickle does
        except UnicodeDecodeError:
            raise NotReadable("its pickle has a text that is not UTF-8") from None

    return _push(make)


def _long(size: int) -> Callable[[_Machine], None]:
    def make(machine: _Machine) -> int:
        count = machine.number(size)
        if size == 4 and count >= 2**31:  # the length is signed
            raise NotReadable("its pickle is damaged")
        return int.from_bytes(machine.take(count), "little", signed=True)

    return _push(make)


def _skip(size: int) -> Callable[[_Machine], None]:
    def run(machine: _Machine) -> None:
        machine.take(size)

    return run


# ---- opcodes of lists and tuples, the stack and the memo

def _mark(machine: _Machine) -> None:
    machine.marks.append(len(machine.stack))


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def run(machine: _Machine) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(values)))

    return run


def _tuple(machine: _Machine) -> None:
    machine.stack.append(tuple(machine.pop_mark()))


def _append_all(machine: _Machine, values: List[Any]) -> None:
    target = machine.top()
    if type(target) is not list:
        raise NotReadable("its pickle appends to a value that is not a list")
    target += values


def _append(machine: _Machine) -> None:
    value = machine.pop()
    _append_all(machine, [value])


def _appends(machine: _Machine) -> None:
    values = machine.pop_mark()
    _append_all(machine, values)


def _put(size: int) -> Callable[[_Machine], None]:
    def run(machine: _Machine) -> None:
        machine.memo[machine.number(size)] = machine.top()

    return run


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _get(size: int) -> Callable[[_Machine], None]:
    return _push(lambda machine: machine.memo[machine.number(size)])


# ---- opcodes of records

def _global_line(machine: _Machine) -> None:
    names = []
    for _ in range(2):
        end = machine.data.find(b"\n", machine.at)
        if end < 0:
            raise NotReadable("its pickle is cut off")
        names.append(str(machine.take(end - machine.at), "utf-8", "replace"))
        machine.at += 1
    machine.stack.append(Name(*names))


def _refuse_global(machine: _Machine) -> None:
    opcode = machine.data[machine.at - 1]
    (_global_line if opcode == ord("c") else _stack_global)(machine)
    found = machine.pop()
    raise NotReadable(f"it is or has {printable(found.module)[:100]}.{printable(found.name)[:100]}")


def _stack_global(machine: _Machine) -> None:
    name, module = machine.pop(), machine.pop()
    if type(name) is not str or type(module) is not str:
        raise NotReadable("its pickle has a global with a name that is not text")
    machine.stack.append(Name(module, name))


def _call(machine: _Machine) -> None:
    args, callable_ = machine.pop(), machine.pop()
    machine.stack.append(Record(callable_, args))


def _build(machine: _Machine) -> None:
    state, target = machine.pop(), machine.top()
    if not isinstance(target, Record):
        raise NotReadable("its pickle sets the state of a value that is not an object")
    target.state = state


def _set_all(machine: _Machine, items: List[Any]) -> None:
    target = machine.top()
    if not isinstance(target, Pairs) or len(items) % 2:
        raise NotReadable("its pickle sets items of a value that is not a dict")
    target.items += items


def _setitem(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set_all(machine, [key, value])


def _setitems(machine: _Machine) -> None:
    items = machine.pop_mark()
    _set_all(machine, items)


_STOP = ord(".")

_PLAIN: Dict[int, Callable[[_Machine], None]] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    ord("N"): _push(lambda machine: None),
    0x88: _push(lambda machine: True),
    0x89: _push(lambda machine: False),
    ord("K"): _push(lambda machine: machine.number(1)),
    ord("M"): _push(lambda machine: machine.number(2)),
    ord("J"): _push(lambda machine: struct.unpack("<i", machine.take(4))[0]),
    0x8A: _long(1),
    0x8B: _long(4),
    ord("G"): _push(lambda machine: struct.unpack(">d", machine.take(8))[0]),
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("]"): _push(lambda machine: []),
    ord("a"): _append,
    ord("e"): _appends,
    ord(")"): _push(lambda machine: ()),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("t"): _tuple,
    ord("("): _mark,
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("h"): _get(1),
    ord("j"): _get(4),
    ord("c"): _refuse_global,
    0x93: _refuse_global,
}

_RECORDS: Dict[int, Callable[[_Machine], None]] = {
    **_PLAIN,
    ord("c"): _global_line,
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,  # NEWOBJ
    ord("b"): _build,
    ord("}"): _push(lambda machine: Pairs()),
    ord("s"): _setitem,
    ord("u"): _setitems,
}

_KINDS = {**dict.fromkeys(b"}dsu", "a dict"), **dict.fromkeys((0x8F, 0x90, 0x91), "a set"), ord("Q"): "a tensor",
          **dict.fromkeys((*b"BCTU", 0x8E, 0x96), "bytes")}


def _refusal(code: int) -> str:
    """Returns the message for an opcode that is not accepted."""
    if code in _KINDS:
        return f"it is or has {_KINDS[code]}"
    return f"its pickle has the opcode 0x{code:02x}, which is not read"
