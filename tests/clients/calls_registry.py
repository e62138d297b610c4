"""The calls of Python's clients of OCI registries that tests make: oras, and modelpack_client, which reads and writes
ModelPack artifacts by the schema of their specification. Results have only JSON's types."""
import os

import oras.client
import oras.oci
from modelpack_client import ModelLayer, ModelPackClient


def options(ca, token):
    """Returns options for both clients. They send the token as a password of the method Basic only with these; oras
    looks elsewhere by default."""
    return {"insecure": ca is None, "tls_verify": ca or True, "auth_backend": "token" if token is None else "basic"}


def oras_for(host, ca, token):
    client = oras.client.OrasClient(hostname=host, **options(ca, token))
    if token is not None:
        client.login(username="any", password=token, hostname=host)
    return client


def pull(host, name, folder, ca=None, token=None):
    return oras_for(host, ca, token).pull(target=f"{host}/{name}", outdir=folder)


def tags(host, name, ca=None, token=None):
    return oras_for(host, ca, token).get_tags(f"{host}/{name}")


def pull_model(host, name, folder, ca=None, token=None):
    """Pull a ModelPack artifact. The client checks the configuration by the specification's schema, and each digest.
    Return the configuration."""
    client = ModelPackClient(host, **options(ca, token))
    if token is not None:
        client.login(host, "any", token)
    return dict(client.pull(f"{host}/{name}", folder).config)


def push(host, name, folder, files, chunk_bytes=None, subject=None, ca=None, token=None, **more):
    """Push files and directories of a folder, in chunks if chunk_bytes is given. subject: [media type, digest, size].
    Return the digest that the registry gives the manifest."""
    os.chdir(folder)
    chunks = {} if chunk_bytes is None else {"do_chunked": True, "chunk_size": chunk_bytes}
    of = subject and oras.oci.Subject(*subject)
    r = oras_for(host, ca, token).push(target=f"{host}/{name}", files=files, subject=of, quiet=True, **chunks, **more)
    return r.headers["Docker-Content-Digest"]


def delete_tag(host, name, tag, ca=None, token=None):
    return oras_for(host, ca, token).delete_tag(f"{host}/{name}", tag)


def push_model(host, name, layers, config, chunked=False, ca=None, token=None):
    """Push a ModelPack artifact. layers: keyword arguments of ModelLayer. Return the digest, which the client compares
    with the registry's."""
    client = ModelPackClient(host, **options(ca, token))
    if token is not None:
        client.login(host, "any", token)
    return client.push(f"{host}/{name}", [ModelLayer(**layer) for layer in layers], config, chunked=chunked,
                       chunk_size=100000).digest
