"""Keeps a vLLM server at the latest version of a model.

    python follow.py tensord://host:8080/run http://vllm:8000

vLLM runs with VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config '{"backend": "tensord"}'. It stays paused after an
update that failed, until one works. TENSORD_TOKEN is the token for reading, if the server asks for one.
"""
import contextlib
import json
import sys
import time
import urllib.request

import tensord

SECONDS = 1800      # the longest wait for an answer of vLLM


def post(engine, path, body=None):
    """Sends a request to vLLM, and returns its answer, an object. Raises OSError if vLLM is not there, or refuses."""
    data, headers = json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(engine + path, data, headers), timeout=SECONDS) as answer:
        return json.load(answer)


def start(engine, url):
    """Names the model to vLLM, and ends an update that a killed follower has begun."""
    post(engine, "/init_weight_transfer_engine", {"init_info": {"url": url}})
    with contextlib.suppress(OSError):      # there was no such update
        post(engine, "/finish_weight_update")


def update(engine, version):
    """Brings vLLM to a version. Requests that run continue with it; their tokens so far are computed again."""
    post(engine, "/pause?mode=keep")
    post(engine, "/start_weight_update")
    post(engine, "/update_weights", {"update_info": {"version": version}})
    post(engine, "/finish_weight_update", {"weight_version": version})
    if not post(engine, "/reset_prefix_cache?reset_running_requests=true")["success"]:
        raise OSError("vLLM did not reset its prefix cache, which has results of the old weights")
    post(engine, "/resume")


def follow(url, engine):
    """Updates vLLM to the latest version, and then to each later one. Does not end by itself."""
    while True:
        try:
            start(engine, url)
            model = tensord.open_model(f"{url}?version=latest")
            update(engine, model.version)
            while True:
                print("vLLM has", model.version, flush=True)
                wait_for_another(model)
                update(engine, model.version)
        except (OSError, tensord.TensordError) as error:
            print("trying again:", error, file=sys.stderr, flush=True)
            time.sleep(5)


def wait_for_another(model):
    """Waits until another version is the latest, and moves the model to it."""
    while True:
        try:
            model.wait_version()
            return model.refresh()
        except TimeoutError:
            pass


if __name__ == "__main__":
    follow(sys.argv[1], sys.argv[2])
