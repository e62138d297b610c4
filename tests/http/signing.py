"""Tokens files for tests, and what is signed with them: written from the documents, without the program."""
import base64
import hashlib
import hmac
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path


class TokensFile:
    """A tokens file. Changes are written at once, as a new file."""

    def __init__(self, path, master_key=bytes(range(32))):
        self.path, self.master_key, self.tokens = Path(path), master_key, {}
        self.write()

    def __fspath__(self):
        return str(self.path)

    def __str__(self):
        return str(self.path)

    @staticmethod
    def text(name):
        """The text of the token of this name."""
        return "td_" + base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")

    def bearer(self, name):
        return {"Authorization": f"Bearer {self.text(name)}"}

    def add(self, name, models=None, expires_s=None, rights=("read",)):
        expires = None if expires_s is None else f"{datetime.fromtimestamp(expires_s, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        self.tokens[name] = {"name": name, "sha256": hashlib.sha256(self.text(name).encode()).hexdigest(),
                             "models": models, "rights": list(rights), "expires": expires,
                             "created": "2026-01-01T00:00:00Z"}
        self.write()
        return self

    def remove(self, name):
        del self.tokens[name]
        self.write()

    def write(self):
        key = base64.urlsafe_b64encode(self.master_key).decode().rstrip("=")
        new = self.path.with_name(self.path.name + ".new")
        new.touch(0o600)
        new.write_text(json.dumps({"version": 1, "master_key": key, "tokens": list(self.tokens.values())}))
        os.replace(new, self.path)

    def derive(self, label, name):
        digest = self.tokens[name]["sha256"] if name else ""
        return hmac.digest(self.master_key, f"{label}\n{name}\n{digest}".encode(), "sha256")

    def s3_keys(self, name):
        """The access key and the secret key of a token."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
        access = "TD" + "".join(letters[b & 31] for b in self.derive("tensord-s3-access", name)[2:20])
        return access, base64.urlsafe_b64encode(self.derive("tensord-s3-secret", name)).decode().rstrip("=")

    def sign(self, target, name="", valid_s=600, method="GET", expires_s=None):
        """The signed URL of a path and query, by the token of this name or by the holder of the file."""
        expires_s = int(time.time()) + valid_s if expires_s is None else expires_s
        target += f"{'&' if '?' in target else '?'}expires={expires_s}"
        digits = hmac.digest(self.derive("tensord-url", name), f"{method}\n{target}".encode(), "sha256").hex()
        return f"{target}&signature={name + '.' if name else ''}{digits}"
