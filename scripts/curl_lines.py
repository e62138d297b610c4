#!/usr/bin/env python3
"""Prints commands that work against a running server:
scripts/curl_lines.py URL [PREFERRED_MODEL] [--requests FILE] [--s3 URL] [--publish off|local|any].

The script asks the server for a model, a tensor and a rank, so that the commands work for any served directory.
FILE is where the server logs requests. The second URL is that of its port for clients of S3. --publish has the
server's value.
"""

import argparse
import json
import shlex
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

LOOKED_AT = 10  # models that are tried for one that an engine can split
MANY = 50  # the most tensors that are shown without pages
# od's format for the types it can print as numbers.
NUMBERS = {"F64": "f8", "F32": "f4", "I64": "d8", "I32": "d4", "I16": "d2", "I8": "d1", "U8": "u1"}


# Proxies of the environment are not used.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
OPENER.addheaders = [("User-Agent", "serve.sh")]  # marks this script's lines in the access log


def get(url):
    with OPENER.open(url, timeout=10) as answer:
        return json.load(answer)


def find_models(base, preferred):
    """Returns the models with tensors, the preferred one first."""
    models = get(base + "/models?page_size=1000")["models"]
    usable = [m for m in models if any(c["tensor_count"] > 0 for c in m["checkpoints"])]
    usable.sort(key=lambda m: m["id"] != preferred)
    return usable


def find_tensor(base, manifest_url):
    """Returns a tensor with bytes, preferably one of a type that od prints as numbers; None if no tensor has bytes."""
    tensors = get(manifest_url + "?page_size=1000")["tensors"]
    usable = [t for t in tensors if t["nbytes"] > 0 and "href" in t and t.get("addressable", True)]
    usable.sort(key=lambda t: t["dtype"] not in NUMBERS)
    return usable[0] if usable else None


def find_rank_file(base, models):
    """Returns the path of a rank's file: one of two ranks, of the first model that vLLM, else fsdp, can split; else a
    whole model."""
    for engine in ("vllm/tp2", "fsdp/tp2", "none/tp1"):
        for model in models[:LOOKED_AT]:
            path = f"/models/{urllib.parse.quote(model['id'])}/shards/{engine}/rank-0"
            try:
                get(f"{base}{path}.json")
            except urllib.error.HTTPError:
                continue
            return path + ".safetensors"
    return None


def find_repository(base, model):
    """Returns the id that clients of the Hub use for the model; None for a model within a larger repository."""
    known = {m["id"] for m in get(base + "/api/models?limit=10000")}
    return next((id for id in (model["id"], "local/" + model["id"]) if id in known), None)


def commands(base, models):
    model = models[0]
    manifest = f"{base}/models/{urllib.parse.quote(model['id'])}/tensors"
    shown = manifest
    if sum(c["tensor_count"] for c in model["checkpoints"]) > MANY:
        shown += "?page_size=10"
    lines = [f"  curl {base}/models", f"  curl {shlex.quote(shown)}"]
    tensor = find_tensor(base, manifest)
    if tensor is not None:
        url = shlex.quote(urllib.parse.urljoin(base + "/", tensor["href"]))
        form = NUMBERS.get(tensor["dtype"], "x1")
        lines.append(f"  curl -s -r 0-63 {url} | od -A d -t {form}")
    rank_file = find_rank_file(base, models)
    if rank_file is not None:
        lines += ["", "One rank's part of the weights, as a file that the server assembles as it sends it:", "",
                  f"  curl -o rank-0.safetensors {shlex.quote(base + rank_file)}"]
    repository = find_repository(base, model)
    if repository is not None:
        lines += ["", "With clients of the Hugging Face Hub:", "",
                  f"  HF_ENDPOINT={base} hf download {shlex.quote(repository)}"]
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("preferred", nargs="?", default="")
    parser.add_argument("--requests", default="-")
    parser.add_argument("--s3", default="")
    parser.add_argument("--publish", default="")
    asked = parser.parse_args()
    base, preferred = asked.url.rstrip("/"), asked.preferred
    models = find_models(base, preferred)
    for _ in range(50):  # a model written a moment ago is published once it has settled
        if models or not preferred:
            break
        time.sleep(0.2)
        models = find_models(base, preferred)
    lines = ["", f"Serving {base}   (Ctrl-C ends it)"]
    if models:
        lines += ["Try, in another terminal:", "", *commands(base, models)]
    else:
        lines += ["There is no model with tensors yet. When there is one, try:", "", f"  curl {base}/models"]
    if asked.s3:
        lines += ["", "With clients of S3:", "", f"  aws --no-sign-request --endpoint-url {asked.s3.rstrip('/')} s3 ls"]
    if asked.publish in ("local", "any"):
        lines += ["", "To put the files of a directory there:", "", f"  build/tensord push DIR {base} my/model"]
    lines += ["", f"In a browser: {base}/"]
    if asked.requests not in ("-", "off"):
        lines.append(f"Requests are logged to {asked.requests}")
    # Written at once, after the last request: the server writes its access log to the same place.
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
