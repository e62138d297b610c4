"""The package's types as a strict type checker of its users sees them (py.typed)."""
import os
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "clients/python"

GOOD = """
from typing import Any, Dict, List, Optional, Tuple
from typing_extensions import assert_type
import tensord
from tensord import Client, Dataset, Manifest, Model, Options, TensordError, connect, load_file, open_model, safe_open
from tensord.safetensors import SafetensorError
from tensord.safetensors.torch import load_file as load_url

client = connect("tensord://127.0.0.1:8080", options=Options(retry_for=1.0))
assert_type(client, Client)
model = open_model("tensord://127.0.0.1:8080/demo", connections=4)
assert_type(model, Model)
assert_type(model.manifest(), Manifest)
assert_type(model.manifest()["x"].shape, Tuple[int, ...])
assert_type(model.read_bytes("x"), bytearray)
assert_type(load_file("tensord://127.0.0.1:8080/demo"), Dict[str, Any])
assert_type(load_url("tensord://127.0.0.1:8080/demo"), Dict[str, Any])
rows = Dataset("tensord://127.0.0.1:8080/datasets/d", decode=None)
assert_type(len(rows), int)
assert_type(rows.column_names, Optional[List[str]])
with safe_open("tensord://127.0.0.1:8080/demo", "pt") as file:
    assert_type(file.keys(), List[str])
try:
    pass
except (TensordError, SafetensorError, tensord.ConnectError):
    pass
"""
BAD = {
    "arg-type": "import tensord\ntensord.open_model(7)\n",
    "call-arg": "import tensord\ntensord.Options(conections=4)\n",
    "attr-defined": "import tensord\ntensord.open_model('tensord://h/m').tensor\n",
    "assignment": "import tensord\nx: int = tensord.open_model('tensord://h/m').manifest().etag\n",
}


def check(tmp_path, text):
    """Runs mypy on a program. Returns its exit status and what it printed."""
    (tmp_path / "program.py").write_text(text)
    run = subprocess.run([sys.executable, "-m", "mypy", "--config-file", CLIENT / "pyproject.toml", "--cache-dir",
                          tmp_path / "cache", "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
                         env={**os.environ, "MYPYPATH": str(CLIENT)})
    return run.returncode, run.stdout + run.stderr


def test_a_strictly_typed_program(tmp_path):
    """All names that it imports are exported, and have the types in docs/python.md; mistakes are found."""
    assert check(tmp_path, GOOD) == (0, "Success: no issues found in 1 source file\n")
    for code, text in BAD.items():
        status, output = check(tmp_path, text)
        assert status == 1 and f"[{code}]" in output and "Found 1 error" in output, output
