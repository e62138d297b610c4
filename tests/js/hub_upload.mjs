// What tests/clients/test_js.py asks of @huggingface/hub about uploads: node hub_upload.mjs URL TOKEN. The library refuses
// tokens that do not begin with hf_, so its requests get the token by `fetch`. Prints one JSON object.
import { createHash } from "node:crypto";
import { commit, createBranch, createRepo, deleteFile, listFiles, uploadFile, uploadFiles } from "@huggingface/hub";

const [hubUrl, token] = process.argv.slice(2);
const print = console.log;
console.log = console.info = console.debug = console.error; // where the library prints must not be where this prints
const withToken = (url, options = {}) => {
	const headers = new Headers(options.headers);
	if (!String(url).includes("signature=")) headers.set("Authorization", `Bearer ${token}`);
	return fetch(url, { ...options, headers });
};
const to = { repo: "org/js", hubUrl, fetch: withToken };
const bytes = (size, seed) => {
	const made = Buffer.alloc(size);
	for (let at = 0; at < size; at += 32) createHash("sha256").update(`${seed} ${at}`).digest().copy(made, at);
	return made;
};
const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const files = {
	"config.json": Buffer.from("{}\n"), "d/small.txt": Buffer.from("small"), "d/large.bin": bytes((9 << 20) + 5, "large"),
	"parts.bin": Buffer.concat([bytes(1 << 20, "parts"), Buffer.alloc(140 << 20, 7)]),
};
const content = (path) => ({ path, content: new Blob([files[path]]) });

await createRepo(to);
await uploadFile({ ...to, file: content("config.json") });
await uploadFiles({ ...to, useXet: false, files: ["d/small.txt", "d/large.bin", "parts.bin"].map(content) });
await createBranch({ ...to, branch: "before" });
await deleteFile({ ...to, path: "config.json" });
await commit({ ...to, title: "Both", operations: [
	{ operation: "addOrUpdate", ...content("config.json") }, { operation: "delete", path: "d/small.txt" }] });
const list = async (revision) => {
	const got = [];
	for await (const f of listFiles({ ...to, recursive: true, revision })) if (f.type === "file") got.push(f.path);
	return got.sort();
};
print(JSON.stringify({ main: await list("main"), before: await list("before"),
	digests: Object.fromEntries(Object.entries(files).map(([path, data]) => [path, sha256(data)])) }));
