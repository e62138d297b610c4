// The browser of tests/pages: node browser.mjs CHROMIUM. Reads calls from standard input, one JSON object a line, and
// writes each result as such a line to standard output. Each page is in a context of its own: nothing is shared but the
// browser. Nothing is put into a page that its policy has to allow: scripts run through the debugger.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
	executablePath: process.argv[2],
	args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync",
		// A name for this machine that is not trusted as localhost is: pages see what they see over a network. No other name
		// is known.
		"--host-resolver-rules=MAP tensord.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
});
const pages = new Map();
let opened = 0;

// Runs in each new document before its own scripts.
const watch = () => {
	const seen = { violations: [], shift: 0 };
	globalThis[Symbol.for("tensord.tests")] = seen;
	document.addEventListener("securitypolicyviolation", (e) =>
		seen.violations.push(`${e.violatedDirective}: ${e.blockedURI || e.sourceFile} ${e.sample}`));
	new PerformanceObserver((list) => {
		for (const shift of list.getEntries()) if (!shift.hadRecentInput) seen.shift += shift.value;
	}).observe({ type: "layout-shift", buffered: true });
};

// Returns what an expression is in the page. The debugger evaluates it itself: page.evaluate would go through the page's
// eval, which Netron replaces by a function that throws.
const run = async ({ session }, expression) => {
	const { result, exceptionDetails } = await session.send("Runtime.evaluate",
		{ expression, awaitPromise: true, returnByValue: true, userGesture: true });
	if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
	return result.value;
};

const calls = {
	// Opens a page at url. Returns its number, and status and headers of the answer.
	async open({ url, width, height, dark, script, user, headers: fields }) {
		const context = await browser.newContext({
			viewport: { width, height }, colorScheme: dark ? "dark" : "light", javaScriptEnabled: script,
			httpCredentials: user ?? undefined, extraHTTPHeaders: fields ?? undefined, locale: "en-GB", acceptDownloads: false,
			permissions: ["clipboard-read", "clipboard-write"],
		});
		const seen = { console: [], errors: [], dialogs: [], requests: [], failed: [], refused: [], others: [] };
		try {
			await context.addInitScript(watch);
			const page = await context.newPage();
			page.on("console", (m) => {
				const { url, lineNumber } = m.location();
				seen.console.push({ type: m.type(), text: m.text(), url, line: lineNumber });
			});
			page.on("pageerror", (e) => seen.errors.push(String(e.stack ?? e)));
			page.on("dialog", (d) => { seen.dialogs.push(`${d.type()}: ${d.message()}`); d.dismiss().catch(() => {}); });
			page.on("request", (r) => seen.requests.push({ url: r.url(), method: r.method(), type: r.resourceType() }));
			page.on("requestfailed", (r) => seen.failed.push({ url: r.url(), why: r.failure()?.errorText ?? "" }));
			page.on("response", (r) => { if (r.status() >= 400) seen.refused.push({ url: r.url(), status: r.status() }); });
			page.on("popup", (p) => { seen.others.push(`popup ${p.url()}`); p.close().catch(() => {}); });
			page.on("download", (d) => seen.others.push(`download ${d.url()}`));
			const session = await context.newCDPSession(page);
			const answer = await page.goto(url, { waitUntil: "load" });
			pages.set(++opened, { page, context, session, seen });
			const headers = (await answer.headersArray()).map((h) => [h.name, h.value]);
			return { page: opened, status: answer.status(), headers };
		} catch (e) {
			await context.close();
			throw e;
		}
	},
	// Opens an address, which the browser may save (here: refuse to save) instead of showing it. Returns which of both, and
	// of the document that it shows globalThis.ran and the number of its scripts.
	async openOrSave({ page, url }) {
		const saved = page.page.waitForEvent("download", { timeout: 0 }).then(() => true, () => true);
		const shown = page.page.goto(url, { waitUntil: "load" }).then(() => false, async (e) => {
			if (!/ERR_ABORTED|Download is starting/.test(String(e))) throw e;
			return await saved;
		});
		if (await shown) return { saved: true };
		const [ran, scripts] = await run(page, `[globalThis.ran ?? null, document.scripts.length]`);
		return { saved: false, ran, scripts };
	},
	// Calls a method of the page, such as click or keyboard.press, whose result is of no use to the caller.
	async act({ page, method, args }) {
		const path = method.split(".");
		const name = path.pop();
		const target = path.reduce((object, part) => object[part], page.page);
		await target[name](...args);
	},
	// Returns what a function returns in the page; source: the text of the function, with one parameter.
	async evaluate({ page, source, argument }) {
		return await run(page, `(${source})(${JSON.stringify(argument ?? null)})`) ?? null;
	},
	// Waits until a function returns something true in the page. This also works while scripts of the page do not run, and
	// while another document takes the page's place.
	async wait({ page, source, argument, timeout }) {
		const end = Date.now() + timeout;
		for (let last; ; await new Promise((next) => setTimeout(next, 30))) {
			try {
				if (await run(page, `(${source})(${JSON.stringify(argument ?? null)})`)) return;
				last = "it returns nothing true";
			} catch (e) {
				last = e;
			}
			if (Date.now() > end) throw new Error(`waited for ${source} with ${JSON.stringify(argument)}: ${last}`);
		}
	},
	// Returns what has been seen of the page so far.
	async report({ page }) {
		const inside = await run(page, `globalThis[Symbol.for("tensord.tests")] ?? null`);
		return { ...page.seen, violations: inside?.violations ?? [], shift: inside?.shift ?? 0, url: page.page.url() };
	},
	// Writes a picture of the whole page, cut off below `height` pixels.
	async shoot({ page, path, height }) {
		const [width, all] = await run(page, `[innerWidth, document.documentElement.scrollHeight]`);
		await page.page.screenshot({ path, fullPage: true, caret: "initial",
			clip: { x: 0, y: 0, width, height: Math.min(all, height) } });
	},
	// Returns axe's findings: rule, impact, help, and up to five places. rules: only these; null: all. Of a long table it
	// sees the first rows: the others are like them, and a table of 500 rows would take 10 seconds.
	async axe({ page, rules }) {
		if (!(await run(page, `typeof axe === "object"`))) await run(page, `${axeSource}; null`);
		const options = { resultTypes: ["violations"], ...(rules ? { runOnly: { type: "rule", values: rules } }
			: { rules: { "target-size": { enabled: true } } }) };
		const { violations } = await run(page, `axe.run({ exclude: ["tbody tr:nth-child(n+31)"] }, ${JSON.stringify(options)})`);
		return violations.map((v) => ({ rule: v.id, impact: v.impact, help: v.help,
			places: v.nodes.slice(0, 5).map((n) => `${n.target.join(" ")}: ${n.failureSummary}`) }));
	},
	async close({ page, number }) {
		pages.delete(number);
		await page.context.close();
	},
};

for await (const line of createInterface({ input: process.stdin })) {
	const { call, page: number, ...rest } = JSON.parse(line);
	let answer;
	try {
		answer = { result: (await calls[call]({ ...rest, number, page: pages.get(number) })) ?? null };
	} catch (e) {
		answer = { error: String(e.stack ?? e) };
	}
	process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
