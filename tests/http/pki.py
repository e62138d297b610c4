"""Certificates for tests, made by the openssl command: authorities, servers and clients."""
import os
import shutil
import ssl
import subprocess
from pathlib import Path


def openssl(*args, stdin=None):
    assert shutil.which("openssl"), "openssl is missing: scripts/deps.sh test installs it"
    p = subprocess.run(["openssl", *map(str, args)], input=stdin, capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, f"openssl {args}: {p.stderr}"
    return p.stdout


class Pair:
    """A certificate and its key."""

    def __init__(self, folder, name):
        self.cert, self.key = Path(folder) / f"{name}.pem", Path(folder) / f"{name}.key"


class Authority(Pair):
    """An authority that signs certificates with keys on P-256."""

    def __init__(self, folder, name="ca"):
        super().__init__(folder, name)
        self.folder = Path(folder)
        openssl("req", "-x509", *self.new_key(self), "-out", self.cert, "-days", 30, "-subj", f"/CN={name}")

    @staticmethod
    def new_key(pair):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", pair.key]

    def sign(self, name, days=30, usage="serverAuth", names="DNS:localhost,IP:127.0.0.1"):
        """Return a new pair for these names. One of -1 days has expired yesterday."""
        pair, request = Pair(self.folder, name), self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage={usage}\nsubjectAltName={names}\n")
        openssl("req", *self.new_key(pair), "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-days", days, "-extfile",
                extensions, "-out", pair.cert)
        pair.key.chmod(0o600)
        return pair

    def context(self, client=None, version=None):
        """Return what a client of Python needs that trusts this authority. client: its own pair."""
        context = ssl.create_default_context(cafile=self.cert)
        if client:
            context.load_cert_chain(client.cert, client.key)
        if version:
            context.minimum_version = context.maximum_version = version
        return context


def put(pair, place):
    """Rename the pair's files to cert.pem and key.pem in a directory, as a careful administrator does."""
    for source, name in ((pair.cert, "cert.pem"), (pair.key, "key.pem")):
        shutil.copy(source, place / f"{name}.new")
        os.rename(place / f"{name}.new", place / name)
    return ["--tls-cert", place / "cert.pem", "--tls-key", place / "key.pem"]


def options_of(pair):
    return ["--tls-cert", pair.cert, "--tls-key", pair.key]
