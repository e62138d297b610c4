// What tests/clients/test_typed.py asks of connect-node: node rpc.mjs. Reads calls from standard input, one JSON object a
// line: {base, schema, protocol, http, json, gzip, get, service, method, request, streams, most, timeout}. Prints the
// answer to each as such a line: the message, the list of messages of a stream, or {code, message, details, messages}.
// It takes the schema from the server `schema`. most: the number of messages after which it cancels a stream.
import { createInterface } from "node:readline";
import { createFileRegistry, fromBinary, fromJson, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";

const makers = { connect: createConnectTransport, grpcweb: createGrpcWebTransport, grpc: createGrpcTransport };
const registries = new Map();

const registryOf = async (from) => {
	if (!registries.has(from)) {
		const bytes = new Uint8Array(await (await fetch(`${from}/tensord.v1.binpb`)).arrayBuffer());
		registries.set(from, createFileRegistry(fromBinary(FileDescriptorSetSchema, bytes)));
	}
	return registries.get(from);
};

const call = async (ask, messages) => {
	const { base, schema, protocol, http, json, gzip, get, service, method, request, most = Infinity, timeout = 30 } = ask;
	const found = (await registryOf(schema)).getService(`tensord.v1.${service}`);
	const about = found.methods.find((one) => one.name === method);
	const options = { baseUrl: base, httpVersion: http, useBinaryFormat: !json, useHttpGet: get };
	if (gzip) Object.assign(options, { sendCompression: compressionGzip, compressMinBytes: 0 });
	const enough = new AbortController();
	const client = createClient(found, makers[protocol](options));
	const answer = client[about.localName](fromJson(about.input, request), { timeoutMs: timeout * 1000, signal: enough.signal });
	if (about.methodKind === "unary") return toJson(about.output, await answer);
	for await (const one of answer) {
		messages.push(toJson(about.output, one));
		if (messages.length < most) continue;
		enough.abort(); // to leave the loop does not cancel the call
		break;
	}
	return messages;
};

for await (const line of createInterface({ input: process.stdin })) {
	const messages = [];
	const answer = await call(JSON.parse(line), messages).catch((error) => {
		const e = ConnectError.from(error);
		return { code: Code[e.code], message: e.rawMessage, details: e.details.map((detail) => detail.type).sort(), messages };
	});
	console.log(JSON.stringify(answer));
}
