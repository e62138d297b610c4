"""Pushes to the registry by hand: blobs, manifests, digests."""
import hashlib
import json
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
PLAIN = "application/vnd.oci.image.layer.v1.tar"
TITLE = "org.opencontainers.image.title"
MODEL_PATH = "org.cncf.model.filepath"
NOTHING = b"{}"


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def described(data, kind="application/octet-stream", **more):
    return {"mediaType": kind, "digest": digest_of(data), "size": len(data), **more}


def layer(path, data, kind=PLAIN, key=TITLE):
    return described(data, kind, annotations={key: path})


def manifest_of(*layers, config=NOTHING, kind=MANIFEST, **more):
    """Return the bytes of a manifest."""
    return json.dumps({"schemaVersion": 2, "mediaType": kind, "config": described(config, EMPTY),
                       "layers": list(layers), **more}).encode()


def index_of(*manifests, **more):
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX,
                       "manifests": [described(m, MANIFEST) for m in manifests], **more}).encode()


class Repo:
    """A repository of a server, and who pushes to it."""

    def __init__(self, srv, name, headers=None):
        self.srv, self.name, self.headers = srv, name, dict(headers or {})

    def ask(self, method, target, body=None, headers=None):
        """Send a request; the target is below the repository, or an absolute path or URL."""
        parts = urlsplit(target)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if not path.startswith("/"):
            path = f"/v2/{self.name}/{path}"
        with self.srv.conn() as conn:
            return conn.request(path, {**self.headers, **(headers or {})}, method, body=body)

    def begin(self, query=""):
        """Begin a session. Return its location."""
        r = self.ask("POST", f"blobs/uploads/{query}", b"")
        assert r.status == 202 and r.get("Range") == "0-0", r
        return r.get("Location")

    def patch(self, location, data, first=None):
        span = {} if first is None else {"Content-Range": f"{first}-{first + len(data) - 1}"}
        return self.ask("PATCH", location, data, {"Content-Type": "application/octet-stream", **span})

    def finish(self, location, data, body=b"", **headers):
        return self.ask("PUT", f"{location}?digest={digest_of(data)}", body, headers)

    def blob(self, data):
        """Push a blob. Return its digest."""
        r = self.ask("POST", f"blobs/uploads/?digest={digest_of(data)}", data)
        assert r.status == 201 and r.get("Docker-Content-Digest") == digest_of(data), r
        return digest_of(data)

    def put(self, reference, text, kind=MANIFEST):
        return self.ask("PUT", f"manifests/{reference}", text, {"Content-Type": kind} if kind else None)

    def push(self, reference, files, config=NOTHING, **more):
        """Push a manifest whose layers are these files, path -> bytes. Return its bytes."""
        for data in {*files.values(), config}:
            self.blob(data)
        text = manifest_of(*(layer(path, data) for path, data in files.items()), config=config, **more)
        r = self.put(reference, text)
        assert r.status == 201 and r.get("Docker-Content-Digest") == digest_of(text), r
        return text

    def get(self, target, headers=None):
        return self.ask("GET", target, None, headers)

    def tags(self):
        r = self.get("tags/list")
        return r.json()["tags"] if r.status == 200 else None

    def referrers(self, digest, query=""):
        r = self.get(f"referrers/{digest}{query}")
        assert r.status == 200 and r.get("Content-Type") == INDEX, r
        return json.loads(r.body)["manifests"]

    def files(self, revision=None):
        """Return the files of the model, path -> SHA-256, as the Hub's face shows them; None without it."""
        r = self.srv.get(f"/api/models/{self.name}/tree/{revision or 'main'}?recursive=1")
        if r.status != 200:
            return None
        return {f["path"]: f.get("lfs", {}).get("oid") for f in r.json() if f["type"] == "file"}


def code_of(r):
    return json.loads(r.body)["errors"][0]["code"]
