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


def answers(call, streams):
    """Return an answer, or the list of those of a stream, as JSON."""
    return [shown(one) for one in call] if streams else shown(call)


def connect(base, protocol, codec, service, method, request, streams=False, compress=True, headers=None, **more):
    """Call by connectrpc, by a protocol (CONNECT, GRPC or GRPC_WEB) and a codec (proto or json)."""
    from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
    from connectrpc.errors import ConnectError
    from connectrpc.protocol import ProtocolType

    messages, name = modules(service)
    client = getattr(importlib.import_module(name + "_connect"), service + "ClientSync")
    codecs = {"proto": google_protobuf_binary_codec, "json": google_protobuf_json_codec}
    ask = json_format.ParseDict(request, getattr(messages, method + "Request")())
    options = {} if compress else {"send_compression": None}
    with client(base, protocol=ProtocolType[protocol], codec=codecs[codec](), **options) as one:
        call = getattr(one, re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower())
        try:
            return answers(call(ask, headers=headers or {}, **more), streams)
        except ConnectError as e:
            return {"code": e.code.value, "message": e.message,
                    "details": sorted(detail.type_name for detail in e.details)}


def grpc(target, service, method, request, streams=False, timeout=30, metadata=(), ca=None, compress=False):
    """Call by grpcio. ca: the file of the authority that the server's certificate must have; None: no TLS."""
    import grpc as library
    from grpc_status import rpc_status

    messages, name = modules(service)
    stub = getattr(importlib.import_module(name + "_pb2_grpc"), service + "Stub")
    ask = json_format.ParseDict(request, getattr(messages, method + "Request")())
    options = {"compression": library.Compression.Gzip} if compress else {}
    if ca is None:
        channel = library.insecure_channel(target, **options)
    else:
        with open(ca, "rb") as file:
            channel = library.secure_channel(target, library.ssl_channel_credentials(file.read()), **options)
    with channel:
        try:
            call = getattr(stub(channel), method)
            return answers(call(ask, timeout=timeout, metadata=[tuple(pair) for pair in metadata]), streams)
        except library.RpcError as e:
            status = rpc_status.from_call(e)
            details = [] if status is None else sorted(any_.type_url.rpartition("/")[2] for any_ in status.details)
            return {"code": e.code().name.lower(), "message": e.details(), "details": details}
