"""The examples of docs/python.md run as they are printed, on a server that is made by the commands of the README."""
import json
import re
import shlex
import subprocess
import sys

import pytest
import warm_python
from conftest import REPO

import harness

REGISTER = ("import fsspec\nfrom tensord.fsspec import TensordFileSystem\n"   # which an installed wheel does itself
            "fsspec.register_implementation('tensord', TensordFileSystem)\n")
CHECKS = """
from itertools import islice
assert half[0, 0] == 128 * 64 % 256 and state['model.norm.weight'][5] == 5 and len(rows) == 16
assert torch.equal(again['lm_head.weight'], weights['lm_head.weight']) and len(again) == len(weights)
assert saved['position'] == 3200 and saved['epoch'] == 1 and dataset[7] == {'n': 7} and len(dataset) == 1000000
following = [n for batch in islice(loader, 3) for n in batch['n'].tolist()]
assert following == tensord.Dataset(url.replace('demo', 'datasets/counts')).shuffled(3200, 96, 1, 1) or \
    following == [row['n'] for row in dataset.shuffled(3200, 96, 1, 1)]
ordered = [n for batch in islice(same, 4) for n in batch['n'].tolist()]
assert ordered == [row['n'] for row in dataset.shuffled(0, 128, 1, 0)]
assert config.startswith(b'{') and counts.column('n').to_pylist() == list(range(1000000))
"""
# Blocks that are run by another test, or need what no test has, by their first line.
ELSEWHERE = {
    "import json": "test_diffusers.py runs it",
    "import numpy": "test_datasets_imagefolder.py runs it",
    'for model in tensord.watch("tensord://127.0.0.1:8080", match="run/*"):   # does not end by itself':
        "test_watching.py has this loop",
    "python -m tensord ls https://weights.example:8443/models/demo --ca-file ca.pem --cert-file me.pem --key-file "
    "me.key": "test_tls_and_proxies.py has these options",
    "HF_ENDPOINT=http://host:8080 vllm serve org/name --load-format tensord --tensor-parallel-size 8": "needs GPUs",
    "python -m sglang.launch_server --model-path tensord://host:8080/org/name --tp 8": "needs GPUs",
}


def blocks(page, language=r"\w*"):
    return re.findall(rf"^```{language}\n(.*?)^```", (REPO / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def readme(tmp_path_factory):
    """A server of the demo model of ./serve.sh and of the dataset that the README makes."""
    place = tmp_path_factory.mktemp("readme")
    subprocess.run([sys.executable, REPO / "scripts" / "demo_model.py", place / "models" / "demo"], check=True)
    made = [block for block in blocks("README.md", "sh") if "models/datasets/counts" in block]
    assert len(made) == 1
    lines = [line for line in made[0].splitlines() if not line.startswith("curl")]
    assert len(lines) == 2
    subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=place, check=True)
    harness.age(place / "models")
    with harness.Server(place / "models") as server:
        yield server


def printed(text, server, folder):
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}").replace("/tmp/", f"{folder}/")


def test_python_runs_as_printed(readme, tmp_path):
    code = REGISTER + printed("\n".join(blocks("docs/python.md", "python")), readme, tmp_path) + CHECKS
    result = subprocess.run([*warm_python.command(), "-"], input=code, capture_output=True, text=True, timeout=300,
                            check=False)
    assert result.returncode == 0, result.stderr


def test_commands_run_as_printed(readme, tmp_path):
    install, *commands = blocks("docs/python.md", "sh")[0].splitlines()
    assert install == "pip install ./clients/python" and len(commands) == 6     # test_package.py installs it
    for command in commands:
        words = printed(command, readme, tmp_path).partition("#")[0].split()
        assert words[:3] == ["python", "-m", "tensord"]
        result = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=60, cwd=tmp_path,
                                check=False)
        assert result.returncode == 0 and result.stderr == "", (command, result.stderr)
    assert (tmp_path / "norm.bin").stat().st_size == 256
    assert result.stdout == '{"n": 0}\n{"n": 1}\n{"n": 2}\n'


@pytest.fixture
def checkpoint(tmp_path, serve):
    """A server that takes uploads; the directory `checkpoint` of the pages is in tmp_path."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/config.json").write_text("{}")
    (tmp_path / "checkpoint/notes.txt").write_text("notes")
    return serve("--publish", "any")


def test_the_page_about_writing_runs_as_printed(checkpoint, tmp_path):
    code = printed("\n".join(blocks("docs/python-publishing.md", "python")), checkpoint, tmp_path)
    code += ("assert first.changed and first.parent == '' and second.parent == first == first.commit\n"
             "assert second.changed and [file.path for file in second.files] == ['config.json']\n"
             "assert all(torch.equal(again[name], one) for name, one in model.state_dict().items())\n"
             "assert len(tensord.open_model(f'{url}-2/step-100').names()) == 4\n")
    done = subprocess.run([*warm_python.command(), "-"], input=code, capture_output=True, text=True, timeout=120,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (command,) = blocks("docs/python-publishing.md", "sh")
    words = shlex.split(printed(command, checkpoint, tmp_path))
    assert words[:3] == ["python", "-m", "tensord"]
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["changed"], done.stderr
    assert len(blocks("docs/python-publishing.md")) == len(blocks("docs/python-publishing.md", "python")) + 1


def test_no_block_is_passed_over():
    """Every block of the page is run by a test of this file, or named above with the reason."""
    run = {*blocks("docs/python.md", "python"), blocks("docs/python.md", "sh")[0]}
    others = [block.splitlines()[0] for block in blocks("docs/python.md") if block not in run]
    assert sorted(others) == sorted(ELSEWHERE)
    fences = re.findall(r"^\s*```", (REPO / "docs/python.md").read_text(), re.MULTILINE)
    assert len(fences) == 2 * (len(run) + len(others))


def test_every_public_name_is_described():
    import tensord

    text = "".join((REPO / "docs" / page).read_text() for page in ("python.md", "python-publishing.md"))
    for name in ("connect", "open_model", "load_file", "state_dict", "load_into", "load_rank", "read_boxes",
                 "safe_open", "watch", "Dataset", "ShuffleSampler", "IterableDataset", "push", "save_file",
                 "save_model",
                 *tensord.Options.__dataclass_fields__):
        assert f"`{name}" in text, name
    for name in tensord.__all__:
        assert getattr(tensord, name).__doc__ or name == "__version__" or name == "PrefetchPlan", name
