// What tests/clients/test_js.py asks of @huggingface/gguf: node gguf.mjs URL... Prints one JSON list.
import { gguf } from "@huggingface/gguf";

const out = [];
for (const url of process.argv.slice(2)) {
	const { metadata, tensorInfos, tensorDataOffset } = await gguf(url);
	out.push({
		metadata,
		tensors: tensorInfos.map((t) => [t.name, t.shape, t.offset]),
		dataOffset: tensorDataOffset,
	});
}
process.stdout.write(JSON.stringify(out, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
