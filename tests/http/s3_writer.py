"""A client of S3 that writes, from Amazon's documents alone: signatures, signed chunks, trailers. Uses no code of the
project and none of botocore."""
import base64
import datetime
import hashlib
import hmac
import http.client
import urllib.parse
import xml.etree.ElementTree as ET
import zlib

EMPTY = hashlib.sha256(b"").hexdigest()
XMLNS = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def crc32(data):
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:800]!r}>"

    def code(self):
        root = ET.fromstring(self.body)
        assert root.tag == "Error", self
        return root.find("Code").text

    def text(self, name):
        """The text of the first element of this name."""
        return next(e.text for e in ET.fromstring(self.body).iter() if e.tag in (name, XMLNS + name))

    def texts(self, name):
        return [e.text for e in ET.fromstring(self.body).iter() if e.tag in (name, XMLNS + name)]

    def common_prefixes(self):
        return [e.text for e in ET.fromstring(self.body).findall(f"{XMLNS}CommonPrefixes/{XMLNS}Prefix")]


class Writer:
    """Sends requests to a port; signs them if it has keys, (access key, secret key)."""

    def __init__(self, port, keys=None):
        self.port, self.keys = port, keys

    def ask(self, method, path, body=b"", query="", headers=None, payload=None, chunked=False):
        """Send a request whose path is not encoded. payload: X-Amz-Content-SHA256, by default the body's SHA-256."""
        headers = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        headers["X-Amz-Content-SHA256"] = payload or hashlib.sha256(body).hexdigest()
        if self.keys:
            self.sign(method, path, query, headers)
        return self.send(method, path, query, headers, body, chunked)

    def send(self, method, path, query, headers, body, chunked=False):
        target = urllib.parse.quote(path) + ("?" + query if query else "")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            if chunked:
                headers = {**headers, "Transfer-Encoding": "chunked"}
                body = iter([body[i:i + 1000] for i in range(0, len(body), 1000)])
            connection.request(method, target, body, headers, encode_chunked=chunked)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def sign(self, method, path, query, headers):
        """Add Authorization. Returns what the signatures of chunks need: key, time, scope and the signature."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers["X-Amz-Date"] = now
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        names = ";".join(sorted(n.lower() for n in headers))
        lines = "".join(f"{n.lower()}:{v.strip()}\n" for n, v in sorted(headers.items(), key=lambda h: h[0].lower()))
        items = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
        canonical = "\n".join([method, urllib.parse.quote(path),
                               "&".join(f"{urllib.parse.quote(k, '')}={urllib.parse.quote(v, '')}" for k, v in items),
                               lines, names, headers["X-Amz-Content-SHA256"]])
        key = b"AWS4" + self.keys[1].encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.keys[0]}/{scope}, SignedHeaders={names}, "
                                    f"Signature={signature}")
        return key, now, scope, signature

    def put(self, path, body, **options):
        return self.ask("PUT", path, body, **options)

    def put_chunks(self, path, pieces, trailer=None, signed=True, change=lambda body: body, query="", length=None,
                   announced=None, chunked=False):
        """PUT pieces as aws-chunked. trailer: (name, value). change: of the coded body, after it was signed."""
        payload = "STREAMING-" + ("AWS4-HMAC-SHA256-PAYLOAD" if signed else "UNSIGNED-PAYLOAD") + (
            "-TRAILER" if trailer or not signed else "")
        size = sum(map(len, pieces)) if length is None else length
        headers = {"Host": f"127.0.0.1:{self.port}", "X-Amz-Content-SHA256": payload,
                   "Content-Encoding": "aws-chunked", "X-Amz-Decoded-Content-Length": str(size)}
        if trailer:
            headers["X-Amz-Trailer"] = announced or trailer[0]
        chain = self.sign("PUT", path, query, headers) if self.keys else (b"", "", "", "0" * 64)
        body = self.code(chain, pieces, trailer, signed)
        return self.send("PUT", path, query, headers, change(body), chunked)

    def code(self, chain, pieces, trailer, signed):
        key, now, scope, previous = chain
        body = b""
        for piece in [*pieces, b""]:
            head = f"{len(piece):x}"
            if signed:
                text = (f"AWS4-HMAC-SHA256-PAYLOAD\n{now}\n{scope}\n{previous}\n{EMPTY}\n"
                        f"{hashlib.sha256(piece).hexdigest()}")
                previous = hmac.digest(key, text.encode(), "sha256").hex()
                head += f";chunk-signature={previous}"
            body += head.encode() + b"\r\n" + (piece + b"\r\n" if piece else b"")
        if trailer:
            line = f"{trailer[0]}:{trailer[1]}"
            body += line.encode() + b"\r\n"
            if signed:
                text = (f"AWS4-HMAC-SHA256-TRAILER\n{now}\n{scope}\n{previous}\n"
                        f"{hashlib.sha256((line + chr(10)).encode()).hexdigest()}")
                body += b"x-amz-trailer-signature:" + hmac.digest(key, text.encode(), "sha256").hex().encode() + b"\r\n"
        return body + b"\r\n"

    # ---- uploads in parts

    def begin(self, path, headers=None):
        answer = self.ask("POST", path, query="uploads=", headers=headers)
        assert answer.status == 200, answer
        return answer.text("UploadId")

    def part(self, path, upload, number, body, **options):
        return self.put(path, body, query=f"partNumber={number}&uploadId={upload}", **options)

    def complete(self, path, upload, parts, headers=None):
        """parts: (number, tag) each."""
        items = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in parts)
        return self.ask("POST", path, f"<CompleteMultipartUpload>{items}</CompleteMultipartUpload>".encode(),
                        query=f"uploadId={upload}", headers=headers)

    def delete_keys(self, bucket, keys, quiet=False):
        items = "".join(f"<Object><Key>{k}</Key></Object>" for k in keys)
        body = f"<Delete>{items}{'<Quiet>true</Quiet>' if quiet else ''}</Delete>".encode()
        return self.ask("POST", f"/{bucket}", body, query="delete=")
