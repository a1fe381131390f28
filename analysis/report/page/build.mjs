// Bundles each page into one file: node build.mjs [DIRECTORY], dist by default.
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "dist");

/** The pages: their program, their style, and what a browser without JavaScript shows. */
const PAGES = [
  {
    file: "page.html",
    script: "main.ts",
    style: "page.css",
    instead: "This page shows a diagnosis interactively and needs JavaScript. The text report " +
      "beside it,\n*.plimsoll.txt, says the same in short.",
  },
  {
    file: "diff.html",
    script: "diff_main.ts",
    style: "diff.css",
    instead: "This page shows a comparison of runs interactively and needs JavaScript. " +
      "`plimsoll diff`\nprints the same in short.",
  },
];

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

async function build({ file, script: program, style: sheet, instead }) {
  const [script, style, template] = await Promise.all([
    bundled(program),
    bundled(sheet),
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
    .replace("{instead}", () => instead)
    .replace("{script}", () => script);
  if (page.length > MAX_SHELL_BYTES) {
    throw new Error(`${file} has ${page.length} bytes, more than ${MAX_SHELL_BYTES}`);
  }
  await writeFile(join(target, file), page);
}

await mkdir(target, { recursive: true });
await Promise.all(PAGES.map(build));
