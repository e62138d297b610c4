// What tests/clients/test_js.py asks of @huggingface/hub: node hub.mjs URL FOLDER. Prints one JSON object.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
	checkRepoAccess, createRepo, datasetInfo, downloadFile, downloadFileToCacheDir, fileDownloadInfo, fileExists, listDatasets,
	listFiles, listModels, modelInfo, parseSafetensorsMetadata, pathsInfo, repoExists, snapshotDownload,
} from "@huggingface/hub";

const [hubUrl, cacheDir] = process.argv.slice(2);
console.log = console.info = console.debug = console.error; // where the library prints must not be where this prints
const repo = { type: "model", name: "ns/plain" };
const names = ["config.json", "name with space.txt", "é/ü+plus.txt", "a+b.txt", "model.safetensors"];

const sha256 = (bytes) => createHash("sha256").update(Buffer.from(bytes)).digest("hex");
const all = async (items) => {
	const got = [];
	for await (const item of items) got.push(item);
	return got;
};
const failure = async (promise) => promise.then(() => "none", (e) => ({ name: e.constructor.name, status: e.statusCode, message: e.message }));
const whole = async (path, revision) => sha256(await (await downloadFile({ repo, hubUrl, path, revision })).arrayBuffer());

const out = {};
out.files = (await all(listFiles({ repo, hubUrl, recursive: true }))).map((f) => [f.path, f.type, f.size, f.lfs?.oid]);
out.folder = (await all(listFiles({ repo, hubUrl, path: "sub/deeper", expand: true }))).map((f) => f.path);
out.downloads = {};
for (const name of names) out.downloads[name] = await whole(name);
const weights = await downloadFile({ repo, hubUrl, path: "model.safetensors" });
out.slice = Buffer.from(await weights.slice(100, 200).arrayBuffer()).toString("hex");
out.info = await fileDownloadInfo({ repo, hubUrl, path: "a+b.txt" });
out.missing = await fileDownloadInfo({ repo, hubUrl, path: "none.txt" });
out.exists = [await fileExists({ repo, hubUrl, path: "a+b.txt" }), await fileExists({ repo, hubUrl, path: "none.txt" })];
out.model = await modelInfo({ name: "ns/plain", hubUrl, additionalFields: ["sha", "tags"] });
out.dataset = await datasetInfo({ name: "ns/data", hubUrl });
out.models = (await all(listModels({ hubUrl, search: { owner: "ns", query: "PLA" }, limit: 3 }))).map((m) => m.name);
out.datasets = (await all(listDatasets({ hubUrl }))).map((d) => d.name);
out.paths = (await pathsInfo({ repo, hubUrl, paths: ["a+b.txt", "none.txt", "é/ü+plus.txt", "sub"] })).map((p) => p.path);
await checkRepoAccess({ repo, hubUrl });
out.repos = [await repoExists({ repo, hubUrl }), await repoExists({ repo: "ns/none", hubUrl })];
out.safetensors = await parseSafetensorsMetadata({ repo, hubUrl });
out.cached = sha256(readFileSync(await downloadFileToCacheDir({ repo, hubUrl, path: "a+b.txt", cacheDir })));
out.snapshot = await snapshotDownload({ repo: "ns/sharded", hubUrl, cacheDir });
out.noRepo = await failure(modelInfo({ name: "ns/none", hubUrl }));
out.noRevision = await failure(all(listFiles({ repo, hubUrl, revision: "refs/pr/1" })));
out.noRank = await failure(all(listFiles({ repo, hubUrl, revision: "tp2-rank2-none" })));
out.noWriting = await failure(createRepo({ repo: { type: "model", name: "ns/new" }, accessToken: "hf_any", hubUrl }));
process.stdout.write(JSON.stringify(out));
