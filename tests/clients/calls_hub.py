"""The calls of huggingface_hub that tests make, in the version that runs this. Results have only JSON's types."""
import threading

import huggingface_hub
from huggingface_hub import (HfApi, HfFileSystem, hf_hub_download, snapshot_download,
                             try_to_load_from_cache)
from huggingface_hub.utils import paginate

api = HfApi()


def version():
    return huggingface_hub.__version__


def download(**kw):
    return hf_hub_download(**kw)


def snapshot(**kw):
    return snapshot_download(**kw)


def many_snapshots(repo_id, caches):
    """Download a snapshot into each cache, all at the same time. Return the errors."""
    errors = []

    def one(cache):
        try:
            snapshot_download(repo_id, cache_dir=cache, max_workers=2)
        except Exception as e:  # noqa: BLE001  all are reported
            errors.append(repr(e))
    threads = [threading.Thread(target=one, args=(c,)) for c in caches]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return errors


def cached(repo_id, filename, cache_dir, revision=None):
    """Return a path, "no-exist" for a file that is known to be missing, or None."""
    got = try_to_load_from_cache(repo_id, filename, cache_dir=cache_dir, revision=revision)
    return got if got is None or isinstance(got, str) else "no-exist"


def lfs(of):
    return of and {"sha256": of.sha256, "size": of.size, "pointer_size": of.pointer_size}


def info(of):
    return {"id": of.id, "sha": of.sha, "private": of.private, "tags": of.tags, "author": of.author,
            "modified": of.last_modified and of.last_modified.isoformat(),
            "files": of.siblings and {s.rfilename: {"size": s.size, "lfs": lfs(s.lfs)} for s in of.siblings}}


def create_repo(**kw):
    return str(api.create_repo(**kw))


def model_info(**kw):
    return info(api.model_info(**kw))


def dataset_info(**kw):
    return info(api.dataset_info(**kw))


def entry(of):
    if not hasattr(of, "size"):
        return {"path": of.path, "folder": True}
    return {"path": of.path, "size": of.size, "oid": of.blob_id, "lfs": lfs(of.lfs)}


def tree(**kw):
    return [entry(e) for e in api.list_repo_tree(**kw)]


def paths_info(**kw):
    return [entry(e) for e in api.get_paths_info(**kw)]


def list_repo_files(**kw):
    return api.list_repo_files(**kw)


def file_exists(**kw):
    return api.file_exists(**kw)


def revision_exists(**kw):
    return api.revision_exists(**kw)


def repo_exists(**kw):
    return api.repo_exists(**kw)


def safetensors(**kw):
    got = api.get_safetensors_metadata(**kw)
    return {"sharded": got.sharded, "weight_map": got.weight_map,
            "tensors": {name: [t.dtype, t.shape] for f in got.files_metadata.values() for name, t in f.tensors.items()}}


def refs(**kw):
    got = api.list_repo_refs(include_pull_requests=True, **kw)
    return {kind: {r.ref: r.target_commit for r in getattr(got, kind)}
            for kind in ("branches", "tags", "converts", "pull_requests")}


def whoami(token):
    return api.whoami(token=token)


def auth_check(**kw):
    return api.auth_check(**kw)


def models(**kw):
    return [m.id for m in api.list_models(**kw)]


def models_by_pages(limit):
    """List models with short pages, so that the client goes from page to page."""
    return [m["id"] for m in paginate(f"{api.endpoint}/api/models", params={"limit": limit}, headers={})]


def datasets(**kw):
    return [d.id for d in api.list_datasets(**kw)]


def verify(repo_id, cache_dir):
    got = api.verify_repo_checksums(repo_id, cache_dir=cache_dir)
    return {
        "checked": got.checked_count, "mismatches": [m["path"] for m in got.mismatches], "missing": got.missing_paths,
        "extra": got.extra_paths
    }


def fs():
    return HfFileSystem(skip_instance_cache=True)


def fs_ls(path):
    return fs().ls(path, detail=False)


def fs_sizes(path):
    return {e["name"]: e["size"] for e in fs().find(path, detail=True).values()}


def fs_glob(pattern):
    return fs().glob(pattern)


def fs_read(path, at=None, n=-1):
    """Return the whole file, or n bytes from `at`, in hexadecimal digits."""
    with fs().open(path, "rb", block_size=4096) as f:
        if at is not None:
            f.seek(at)
        return f.read(n).hex()


def fs_exists(path):
    return fs().exists(path)


def fs_info(path):
    return {k: v for k, v in fs().info(path, refresh=True).items() if k in ("name", "size", "type")}


def errors(repo_id):
    """Return the files that the model's description marks as not what their names say -> whether they are pointers."""
    return {e["file"]: "git lfs pull" in e["error"] for e in api.model_info(repo_id).errors}


def about_of(of):
    return {"id": of.id, "task": of.pipeline_tag, "library": of.library_name, "tags": of.tags, "config": of.config,
            "card": of.card_data and of.card_data.to_dict(),
            "safetensors": of.safetensors and {"parameters": of.safetensors.parameters, "total": of.safetensors.total}}


def about(repo_id):
    return about_of(api.model_info(repo_id))


def about_all(**kw):
    return [about_of(m) for m in api.list_models(**kw)]
