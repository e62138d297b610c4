"""The calls of Python's clients of OCI registries that tests make: oras, and modelpack_client, which reads ModelPack
artifacts by the schema of their specification. Results have only JSON's types."""
import oras.client
from modelpack_client import ModelPackClient


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
