#!/usr/bin/env bash
# Checks the Python client: ruff for faults and blank lines, mypy for strict types. Both have their settings in
# clients/python/pyproject.toml and come with .venv (tests/requirements.txt). With --fix ruff mends what it can.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root/clients/python"
bin=$root/.venv/bin
for tool in ruff mypy; do
    [ -x "$bin/$tool" ] || { echo "check_python.sh: .venv has no $tool; ./test.sh lint installs it" >&2; exit 1; }
done
fix=()
[ "${1-}" != --fix ] || fix=(--fix)
"$bin/ruff" check --no-cache --quiet --output-format concise "${fix[@]}" tensord
"$bin/mypy" --cache-dir "$root/build-results/mypy"
