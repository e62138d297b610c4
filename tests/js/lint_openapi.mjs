// Lints an OpenAPI document with Redocly's rules: node lint_openapi.mjs CONFIGURATION DOCUMENT.
// Prints one line for each problem and exits with 1 when there is one. Nothing is asked for over the network.
import { lint, loadConfig } from "@redocly/openapi-core";

const [configPath, ref] = process.argv.slice(2);
const config = await loadConfig({ configPath });
const problems = await lint({ ref, config });
for (const p of problems)
  console.log(`${p.severity} ${p.ruleId}: ${p.message} ${p.location[0]?.pointer ?? ""}`);
process.exitCode = problems.length > 0 ? 1 : 0;
