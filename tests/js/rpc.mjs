// What tests/clients/test_typed.py asks of connect-node: node rpc.mjs. Reads calls from standard input, one JSON object a
// line: {base, protocol, http, json, gzip, service, method, request, streams, timeout}. Prints the answer to each as such
// a line: the message, the list of messages of a stream, or {code, message, details}. It takes the schema from the server.
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

const call = async ({ base, schema, protocol, http, json, gzip, get, service, method, request, timeout, headers }) => {
	const found = (await registryOf(schema)).getService(`tensord.v1.${service}`);
	const about = found.methods.find((one) => one.name === method);
	const options = { baseUrl: base, httpVersion: http, useBinaryFormat: !json, useHttpGet: get };
	if (gzip) Object.assign(options, { sendCompression: compressionGzip, compressMinBytes: 0 });
	const client = createClient(found, makers[protocol](options));
	const answer = client[about.localName](fromJson(about.input, request), { timeoutMs: timeout, headers });
	if (about.methodKind === "unary") return toJson(about.output, await answer);
	const all = [];
	for await (const one of answer) all.push(toJson(about.output, one));
	return all;
};

for await (const line of createInterface({ input: process.stdin })) {
	const answer = await call(JSON.parse(line)).catch((error) => {
		const e = ConnectError.from(error);
		return { code: Code[e.code], message: e.rawMessage, details: e.details.map((detail) => detail.type).sort() };
	});
	console.log(JSON.stringify(answer));
}
