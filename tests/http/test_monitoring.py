"""docs/monitoring against the server's /metrics, and all of it against Prometheus's own promtool."""
import json
import re
import shutil
import subprocess

import pytest

import pki
from harness import REPO, Server, age, tensor, write_by_hand

RULES = REPO / "docs/monitoring/tensord-alerts.yml"
DASHBOARD = json.loads((REPO / "docs/monitoring/tensord-dashboard.json").read_text())
NAME = re.compile(r"\btensord_\w+")
# Labels that Prometheus adds to each sample.
SCRAPED = {"job", "instance"}


def promtool(*args, stdin=None):
    """Run promtool, and return its exit status and all that it printed."""
    assert shutil.which("promtool"), "promtool is missing: scripts/deps.sh test installs it (Debian's prometheus)"
    p = subprocess.run(["promtool", *map(str, args)], input=stdin, capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout + p.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The text of /metrics after answers of several kinds, and its samples."""
    root = tmp_path_factory.mktemp("monitored")
    write_by_hand(root / "m/model.safetensors", [tensor("w", "F32", [1000])])
    (root / "d").mkdir()
    (root / "d/train.jsonl").write_text('{"a":1}\n')
    (root / "bad").mkdir()
    (root / "bad/model.safetensors").write_bytes(b"\xff" * 64)
    for name in ("m", "d", "bad"):
        age(root / name)
    ca = pki.Authority(tmp_path_factory.mktemp("pki"))
    with Server(root, *pki.options_of(ca.sign("server")), tls=ca.context()) as s:
        for target in ("/models", "/models/m/tensors/w", "/nope", "/readyz", "/healthz"):
            s.get(target)
        assert s.get("/models/m/tensors/w", [("Range", "bytes=0-3")]).status == 206
        text = s.get("/metrics").body.decode()
        _, _, samples = s.metrics()
    return text, samples


def test_prometheus_finds_no_fault_in_the_metrics(page):
    assert promtool("check", "metrics", stdin=page[0]) == (0, "")
    bad = page[0].replace("# HELP tensord_models Models published.\n", "")
    assert promtool("check", "metrics", stdin=bad)[0] != 0      # it does look


def expressions():
    """All expressions of the dashboard, with its variables replaced."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield re.sub(r"\$(job|instance)\b", "x", target["expr"].replace("$__rate_interval", "5m"))


def test_names_and_labels_are_those_of_the_server(page):
    """Also for the legends: a label that no sample has would be shown as nothing."""
    names = {name for name, _, _ in page[1]}
    labels = {label for _, sample, _ in page[1] for label in sample} | SCRAPED
    legends = " ".join(t.get("legendFormat", "") for p in DASHBOARD["panels"] for t in p["targets"])
    for text in (RULES.read_text(), "\n".join(expressions())):
        used = set(NAME.findall(text))
        assert len(used) > 10 and not used - names, sorted(used - names)
        used = set(re.findall(r'[{,]\s*(\w+)\s*(?:=|!=|=~|!~)\s*"', text))
        used |= {w for group in re.findall(r"\bby \(([^)]*)\)", text) for w in re.findall(r"\w+", group)}
        assert used and not used - labels, sorted(used - labels)
    assert set(re.findall(r"\{\{(\w+)\}\}", legends)) <= labels


def test_the_dashboard_shows_what_an_operator_asks_for():
    text = "\n".join(expressions())
    for name in ("requests_total", "sent_bytes_total", "duration_seconds_bucket", "http_connections", "refused_total",
                 "models", "unreadable_files", "failed_scans_total", "hashed_file_bytes", "row_index_bytes",
                 "decode_cache_bytes", "certificate_expiry", "upload_received_bytes_total", "publish_open_blobs",
                 "publish_commits_total", "publish_used_bytes", "publish_max_bytes", "publish_disk_free_bytes",
                 "publish_failures_total", "publish_refused_total", "uploads_refused_total"):
        assert name in text, name
    ids = [p["id"] for p in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and len(ids) > 15
    cells = [(x, y) for g in (p["gridPos"] for p in DASHBOARD["panels"]) for x in range(g["x"], g["x"] + g["w"])
             for y in range(g["y"], g["y"] + g["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23, "panels overlap, or leave the grid"
    for panel in DASHBOARD["panels"]:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"], panel["id"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["id"]


def test_prometheus_reads_all_expressions(tmp_path):
    code, said = promtool("check", "rules", RULES)
    assert code == 0 and "SUCCESS" in said, said
    rules = [{"record": f"r{i}", "expr": e} for i, e in enumerate(expressions())]
    path = tmp_path / "dashboard.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    code, said = promtool("check", "rules", path)
    assert code == 0, said


# Per alert: the series that make it fire after half an hour. All others are healthy.
FIRING = {
    "TensordDown": {"up": "0x40"},
    "TensordNotReady": {"tensord_ready": "0x40"},
    "TensordRootMissing": {"tensord_root_missing": "1x40"},
    "TensordServerErrors": {'tensord_http_requests_total{code="503",route="tensor"}': "0+100x40"},
    "TensordConnectionsNearLimit": {"tensord_http_connections": "95x40"},
    "TensordConnectionsRefused": {'tensord_http_connections_refused_total{limit="address"}': "0+1x40"},
    "TensordScanFails": {"tensord_scan_failed": "1x40"},
    "TensordScanOld": {"tensord_last_scan_age_seconds": "0+60x40"},
    "TensordFilesWithErrors": {"tensord_unreadable_files": "1x40"},
    "TensordBlobsDamaged": {"tensord_hash_mismatches_total": "0x20 1x20"},
    "TensordAnswersCut": {'tensord_http_cut_transfers_total{reason="changed"}': "0+1x40"},
    "TensordCertificateEnds": {"tensord_tls_certificate_expiry_timestamp_seconds": f"{13 * 86400}x40"},
    "TensordTokensStale": {"tensord_tokens_file_failed": "1x40"},
    "TensordUpstreamFails": {'tensord_upstream_failures_total{reason="unreachable"}': "0+1x40"},
    "TensordLogLinesLost": {"tensord_access_log_dropped_lines_total": "0+5x40"},
    "TensordPublishNearlyFull": {"tensord_publish_used_bytes": "91x40"},
    "TensordPublishDiskNearlyFull": {"tensord_publish_disk_free_bytes": "49x40"},
    "TensordPublishFails": {'tensord_publish_failures_total{reason="other"}': "0+1x40"},
    "TensordCommitsLate": {'tensord_publish_failures_total{reason="late"}': "3+1x40"},
    "TensordUploadsRefused": {'tensord_uploads_refused_total{cause="address"}': "0+1x40"},
    "TensordUploadsDamaged": {'tensord_publish_refused_total{cause="digest"}': "0+1x40"},
    "TensordUploadStuck": {"tensord_publish_oldest_upload_seconds": "14401+60x40"},
}
HEALTHY = {
    "tensord_tokens_file_failed": "0x40",
    "tensord_tls_certificate_expiry_timestamp_seconds": f"{15 * 86400}x40",
    "up": "1x40", "tensord_ready": "1x40", "tensord_root_missing": "0x40", "tensord_scan_failed": "0x40",
    'tensord_http_requests_total{code="200",route="tensor"}': "0+1000x40",
    'tensord_http_requests_total{code="503",route="tensor"}': "0+1x40",
    'tensord_http_requests_total{code="503",route="readyz"}': "0+1000x40",
    "tensord_http_connections": "50x40", "tensord_http_connections_limit": "100x40",
    'tensord_http_connections_refused_total{limit="address"}': "7x40",
    "tensord_last_scan_age_seconds": "9x40", "tensord_unreadable_files": "0x40", "tensord_unpublished_paths": "0x40",
    "tensord_row_index_failed_files": "0x40", "tensord_hash_mismatches_total": "3x40",
    'tensord_http_cut_transfers_total{reason="client"}': "0+9x40",
    'tensord_upstream_failures_total{reason="unreachable"}': "5x40", "tensord_upstream_absent_total": "0+1x40",
    'tensord_http_cut_transfers_total{reason="changed"}': "2x40", "tensord_access_log_dropped_lines_total": "4x40",
    "tensord_publish_used_bytes": "90x40", "tensord_publish_max_bytes": "100x40",
    "tensord_publish_disk_free_bytes": "50x40", "tensord_publish_disk_bytes": "1000x40",
    "tensord_publish_oldest_upload_seconds": "9+60x40",
    'tensord_publish_failures_total{reason="late"}': "3x40", 'tensord_publish_failures_total{reason="room"}': "5x40",
    'tensord_publish_refused_total{cause="digest"}': "2x40",
    'tensord_publish_refused_total{cause="room"}': "0+9x40",
    'tensord_uploads_refused_total{cause="address"}': "4x40",
    'tensord_uploads_refused_total{cause="handler"}': "0+9x40",
}


# A server that does not publish, as the page of /metrics shows it.
WITHOUT_PUBLISH = {name: "0x40" for name in ("tensord_publish_used_bytes", "tensord_publish_max_bytes",
                                             "tensord_publish_disk_free_bytes", "tensord_publish_disk_bytes")}


def series(name, values, instance="h:8080"):
    name, _, labels = name.partition("{")
    return {"series": f'{name}{{job="tensord",instance="{instance}"{"," + labels if labels else "}"}', "values": values}


def test_each_alert_fires_alone(tmp_path):
    """By promtool's own evaluation: nothing fires while all is well, and of each fault the alert that names it."""
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert sorted(alerts) == sorted(FIRING)
    cases = []
    for fault in (None, *alerts):
        state = {**HEALTHY, **FIRING.get(fault, {})}
        fires = "ALERTS{alertstate='firing'}"
        wanted = [{"labels": f'{{alertname="{fault}"}}', "value": 1}] if fault else []
        others = [series(*s, "reader:8080") for s in WITHOUT_PUBLISH.items()]
        cases.append({"interval": "1m", "input_series": [series(*s) for s in state.items()] + others,
                      "promql_expr_test": [{"expr": f"count by (alertname) ({fires})", "eval_time": "30m",
                                            "exp_samples": wanted}]})
    path = tmp_path / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    code, said = promtool("test", "rules", path)
    assert code == 0, said
