// Bundles the page into one file: node build.mjs [FILE], dist/page.html by default.
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "dist", "page.html");

/** Maximum size of the page without data, in bytes. */
const MAX_SHELL_BYTES = 150_000;

async function bundled(entry) {
  const result = await esbuild.build({
    entryPoints: [join(here, "src", entry)],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    charset: "ascii",
    legalComments: "none",
    format: "iife",
  });
  return result.outputFiles[0].text.trim();
}

function hash(content) {
  return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
}

const [script, style, template] = await Promise.all([
  bundled("main.ts"),
  bundled("page.css"),
  readFile(join(here, "src", "page.html"), "utf8"),
]);
if (script.includes("</script") || style.includes("</style")) {
  throw new Error("the bundle would end its own element");
}
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");
const page = template
  .replace("{policy}", () => policy)
  .replace("{style}", () => style)
  .replace("{script}", () => script);
if (page.length > MAX_SHELL_BYTES) {
  throw new Error(`the page has ${page.length} bytes, more than ${MAX_SHELL_BYTES}`);
}
await mkdir(dirname(target), { recursive: true });
await writeFile(target, page);
