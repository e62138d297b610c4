"""The examples of docs/python.md run as they are printed, on the demo model of ./serve.sh and a dataset of JSON."""
import json
import re
import subprocess
import sys

from conftest import REPO

import harness


def blocks(language):
    text = (REPO / "docs" / "python.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_examples_run_as_printed(serve, tmp_path):
    subprocess.run([sys.executable, REPO / "scripts" / "demo_model.py", serve.root / "demo"], check=True)
    (serve.root / "datasets" / "demo").mkdir(parents=True)
    lines = [json.dumps({"x": number, "y": number / 2}) + "\n" for number in range(1000)]
    (serve.root / "datasets" / "demo" / "train.jsonl").write_text("".join(lines))
    server = serve()
    here = f"127.0.0.1:{server.port}"
    code = "\n".join(blocks("python")).replace("127.0.0.1:8080", here).replace("/tmp/", f"{tmp_path}/")
    assert len(blocks("python")) == 6
    code += "\nassert half[0, 0] == 128 * 64 % 256 and state['model.norm.weight'][5] == 5 and len(rows) == 16\n"
    code += "assert torch.equal(again['lm_head.weight'], weights['lm_head.weight']) and len(again) == len(weights)\n"
    code += "assert saved['position'] == 1000 and saved['epoch'] == 1 and dataset[7] == {'x': 7, 'y': 3.5}\n"
    code += "rows_left = [x for batch in loader for x in batch['x'].tolist()]; assert rows_left == []\n"
    code += "ordered = [x for batch in same for x in batch['x'].tolist()]; sampler.set_epoch(0)\n"
    code += "assert ordered == list(sampler) and sorted(ordered) == list(range(1000))\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    commands = [line for line in blocks("sh")[0].splitlines() if line.startswith("python -m")]
    assert len(commands) == 6
    for command in commands:
        words = command.replace("127.0.0.1:8080", here).partition("#")[0].split()
        result = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert result.returncode == 0 and result.stderr == "", (command, result.stderr)
    assert (tmp_path / "norm.bin").stat().st_size == 256


def test_every_public_name_is_described():
    import tensord

    text = (REPO / "docs" / "python.md").read_text()
    for name in ("connect", "open_model", "load_file", "state_dict", "load_into", "load_rank", "read_boxes",
                 "safe_open", "Dataset", "ShuffleSampler", "IterableDataset", *tensord.Options.__dataclass_fields__):
        assert f"`{name}" in text, name
    for name in tensord.__all__:
        assert getattr(tensord, name).__doc__ or name == "__version__" or name == "PrefetchPlan", name
