"""Turns api/openapi.yaml into JSON, compressed, as C: embed_openapi.py IN.yaml VERSION OUT.c"""
import json
import sys
import zlib

import yaml

with open(sys.argv[1], encoding="utf-8") as source:
    document = yaml.safe_load(source)
document["info"]["version"] = sys.argv[2]
text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
packed = zlib.compress(text, 9)
with open(sys.argv[3], "w", encoding="ascii") as out:
    out.write("/* Made from api/openapi.yaml by embed_openapi.py. */\n")
    out.write("#include \"api/native/openapi_text.h\"\n\n")
    out.write("const unsigned char td_openapi_packed[] = {\n")
    for at in range(0, len(packed), 20):
        out.write("    " + ", ".join(str(byte) for byte in packed[at:at + 20]) + ",\n")
    out.write("};\n")
    out.write("const size_t td_openapi_packed_len = sizeof td_openapi_packed;\n")
    out.write(f"const size_t td_openapi_json_len = {len(text)};\n")
