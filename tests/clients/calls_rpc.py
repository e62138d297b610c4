"""The calls of typed clients that tests make: connectrpc, and grpcio with the code that its plugins made. PYTHONPATH
names the folder of that code."""
import importlib
import re

from google.protobuf import json_format


def modules(service):
    """Return the messages of a service's file, and the name of its modules without their ends."""
    name = "tensord.v1." + re.sub(r"(?<!^)(?=[A-Z])", "_", service).lower()
    return importlib.import_module(name + "_pb2"), name


def shown(message):
    return json_format.MessageToDict(message)


class Answers:
    """The result of a call as JSON: an answer, or the list of those of a stream. most: the number of messages after
    which the client has enough, and cancels the call."""

    def __init__(self, streams, most):
        self.streams, self.most, self.messages = streams, most, []

    def read(self, call):
        if not self.streams:
            return shown(call)
        for one in call:
            self.messages.append(shown(one))
            if len(self.messages) == self.most:
                (call.cancel if hasattr(call, "cancel") else call.close)()
                break
        return self.messages

    def failed(self, code, message, details):
        error = {"code": code, "message": message, "details": sorted(details)}
        return {**error, "messages": self.messages} if self.streams else error


def connect(base, protocol, codec, service, method, request, streams=False, most=None, compress=True, timeout=30):
    """Call by connectrpc, by a protocol (CONNECT, GRPC or GRPC_WEB) and a codec (proto or json); GRPC by HTTP/2."""
    import pyqwest
    from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
    from connectrpc.errors import ConnectError
    from connectrpc.protocol import ProtocolType

    messages, name = modules(service)
    client = getattr(importlib.import_module(name + "_connect"), service + "ClientSync")
    codecs = {"proto": google_protobuf_binary_codec, "json": google_protobuf_json_codec}
    ask = json_format.ParseDict(request, getattr(messages, method + "Request")())
    options = {} if compress else {"send_compression": None}
    if protocol == "GRPC":
        transport = pyqwest.SyncHTTPTransport(http_version=pyqwest.HTTPVersion.HTTP2)
        options["http_client"] = pyqwest.SyncClient(transport)
    with client(base, protocol=ProtocolType[protocol], codec=codecs[codec](), **options) as one:
        call = getattr(one, re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower())
        found = Answers(streams, most)
        try:
            return found.read(call(ask, timeout_ms=int(timeout * 1000)))
        except ConnectError as e:
            return found.failed(e.code.value, e.message, [detail.type_name for detail in e.details])


def grpc(target, service, method, request, streams=False, most=None, timeout=30, compress=False):
    """Call by grpcio."""
    import grpc as library
    from grpc_status import rpc_status

    messages, name = modules(service)
    stub = getattr(importlib.import_module(name + "_pb2_grpc"), service + "Stub")
    ask = json_format.ParseDict(request, getattr(messages, method + "Request")())
    options = {"compression": library.Compression.Gzip} if compress else {}
    with library.insecure_channel(target, **options) as channel:
        found = Answers(streams, most)
        try:
            return found.read(getattr(stub(channel), method)(ask, timeout=timeout))
        except library.RpcError as e:
            status = rpc_status.from_call(e)
            details = [] if status is None else [any_.type_url.rpartition("/")[2] for any_ in status.details]
            return found.failed(e.code().name.lower(), e.details(), details)
