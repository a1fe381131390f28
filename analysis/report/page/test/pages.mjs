// Pages for the tests, made by `plimsoll report --format html`, and the browser that opens them.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { openSync, closeSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { chromium } from "playwright-core";
import { writeJob } from "./generated.mjs";

const fixtures = join(dirname(fileURLToPath(import.meta.url)), "fixtures");
/** The `plimsoll` command. */
const command = process.env.PLIMSOLL ?? "plimsoll";

/** A directory for pages and profiles of browsers, removed by `close`. */
export async function workspace() {
  const directory = await mkdtemp(join(tmpdir(), "plimsoll-page-"));
  return { directory, close: () => rm(directory, { recursive: true, force: true }) };
}

/** Makes the page of a summary's file. Returns the path of the page. */
export function pageOf(file) {
  const page = file.replace(/\.json$/, ".html");
  const output = openSync(page, "w");
  try {
    execFileSync(command, ["report", file, "--format", "html"], { stdio: ["ignore", output, "inherit"] });
  } finally {
    closeSync(output);
  }
  return page;
}

/** The page of a summary. */
export async function made(directory, name, summary) {
  const file = join(directory, `${name}.plimsoll.json`);
  await writeFile(file, JSON.stringify(summary));
  return { summary, page: pageOf(file) };
}

/** The summary of a real job: `imbalance` or `lammps`. */
export async function recorded(name) {
  return JSON.parse(gunzipSync(await readFile(join(fixtures, `${name}.json.gz`))));
}

/** The page of a real job, without its side files. */
export async function real(directory, name) {
  return made(directory, name, await recorded(name));
}

/** The page of a job that never ran. */
export async function generated(directory, name, size) {
  const { file, summary } = await writeJob(directory, name, size);
  return { summary, page: pageOf(file) };
}

/** A recorded summary of `plimsoll diff`'s own tests. */
export function comparisonOf(name) {
  return join(fixtures, "../../../../compare/tests/growth", name);
}

/** Compares summaries, as a page and as JSON. */
export function compared(directory, name, files, options = []) {
  const output = (format) => {
    const result = spawnSync(command, ["diff", ...files, ...options, "--format", format],
      { maxBuffer: 1 << 28 });
    // 1 is a comparison above its limit.
    if (result.error || result.status > 1) throw result.error ?? new Error(String(result.stderr));
    return result.stdout;
  };
  const page = join(directory, `${name}.diff.html`);
  writeFileSync(page, output("html"));
  return { page, comparison: JSON.parse(output("json")) };
}

/** A browser that reaches nothing but the files of the test. */
export async function browser(directory) {
  return chromium.launchPersistentContext(join(directory, "profile"), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    viewport: { width: 1400, height: 900 },
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ],
  });
}

/** Opens a page and keeps what goes wrong in it: errors, messages, requests, dialogs. */
export async function opened(context, path, hash = "") {
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => problems.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (request.url() !== `file://${path}`) problems.push(`request: ${request.url()}`);
  });
  await page.goto(`file://${path}${hash}`);
  await page.waitForSelector("html[data-ready]");
  return { page, problems };
}

/** Runs a test on an open page, and then holds that nothing went wrong in it. */
export async function held(context, job, hash, act) {
  const { page, problems } = await opened(context, job.page, hash);
  try {
    await act(page, job.summary);
    assert.deepEqual(problems, []);
  } finally {
    await page.close();
  }
}

/** Goes to another address of an open page, and waits until the view is filled. */
export async function to(page, hash) {
  await page.evaluate((hash) => (location.hash = hash), hash);
  const view = hash.slice(1).split("?")[0];
  await page.waitForFunction((view) => {
    const place = document.getElementById("view");
    return place?.dataset.view === view && place.childElementCount > 0;
  }, view);
}

/** Holds that a page has a light and a dark ground, and that its cards, not its menu, go on paper. */
export async function themesAndPaper(page) {
  const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await ground();
  await page.click(".theme");
  assert.notEqual(await ground(), light);
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.locator("nav").isVisible(), false);
  assert.ok(await page.locator(".card").first().isVisible());
}
