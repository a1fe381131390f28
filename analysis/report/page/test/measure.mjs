// What large pages cost: prints a table of sizes, times and memory, each beside its limit.
// node test/measure.mjs; PLIMSOLL names the command.
import { stat } from "node:fs/promises";
import { loadavg } from "node:os";
import { browser, generated, opened, to, workspace } from "./pages.mjs";

const LIMITS = { file: 10e6, paint: 1000, open: 2000, interaction: 100 };
let failed = 0;

/** Prints a row of the table; `cpu` is the CPU time of the page's main thread, in ms. */
function line(name, value, unit, limit, cpu) {
  const within = limit === undefined || value <= limit;
  if (!within) failed += 1;
  const bound = limit === undefined ? "" : `  at most ${limit} ${unit}${within ? "" : "  EXCEEDED"}` +
    (cpu === undefined ? "" : `  (${cpu.toFixed(0)} ms of CPU time)`);
  console.log(`${name.padEnd(44)} ${value.toFixed(value < 10 ? 2 : 0).padStart(8)} ${unit}${bound}`);
}

/** Seconds of CPU time that the main thread of a page has taken so far. */
async function mainThread(session) {
  const { metrics } = await session.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "ThreadTime").value;
}

/** Measures an act in the page, and prints it: other programs lengthen the time, not the CPU time. */
async function interact(page, session, [name, act, argument]) {
  const before = await mainThread(session);
  const time = await interaction(page, act, argument);
  const cpu = ((await mainThread(session)) - before) * 1e3;
  line(name, time, "ms", LIMITS.interaction, cpu);
}

/** Milliseconds from an act in the page until the next frame is painted. */
function interaction(page, act, argument) {
  return page.evaluate(async ([source, argument]) => {
    const act = (0, globalThis[Symbol.for("acts")])[source];
    const begin = performance.now();
    act(argument);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return performance.now() - begin;
  }, [act, argument]);
}

/** What a user does, in the page: the page's policy forbids code from text, so the acts are named. */
function install(page) {
  return page.addInitScript(() => {
    const press = (element, key) => {
      element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    };
    globalThis[Symbol.for("acts")] = {
      click: (selector) => document.querySelector(selector).click(),
      pressed: (text) => [...document.querySelectorAll(".controls button")]
        .find((button) => button.textContent === text).click(),
      type: (text) => {
        const search = document.getElementById("search");
        search.value = text;
        search.dispatchEvent(new Event("input", { bubbles: true }));
      },
      key: (key) => press(document.querySelector(".grid, canvas.timeline"), key),
      scroll: (top) => (document.querySelector(".rows").scrollTop = top),
    };
  });
}

async function large(context, directory) {
  const job = await generated(directory, "large", {
    ranks: 4096, contexts: 100_000, cells: { rows: 512, columns: 2048 }, rankBytes: 64 << 20,
  });
  console.log("4096 ranks, 100,000 contexts, 1,048,576 cells");
  line("file", (await stat(job.page)).size / 1e6, "MB", LIMITS.file / 1e6);
  const { page } = await opened(context, job.page);
  const session = await context.newCDPSession(page);
  await session.send("Performance.enable");
  line("verdict shown after", await paint(page), "ms", LIMITS.paint);
  for (const [view, wanted] of [["contexts", ".rows .row"], ["timeline", "canvas.timeline"],
    ["ranks", "#view canvas"]]) {
    const begin = performance.now();
    await to(page, `#${view}`);
    await page.waitForSelector(wanted);
    line(`first visit to ${view}, with its data`, performance.now() - begin, "ms");
  }
  await to(page, "#timeline");
  await page.waitForSelector("canvas.timeline");
  for (const act of [
    ["timeline: zoom", "key", "+"], ["timeline: move", "key", "ArrowRight"],
    ["timeline: order by node", "pressed", "By node"], ["timeline: waiting", "pressed", "Waiting"],
  ]) await interact(page, session, act);
  await to(page, "#contexts");
  await page.waitForSelector(".rows .row");
  for (const act of [
    ["contexts: sort", "click", "[data-sort=exclusive]"], ["contexts: next row", "key", "ArrowDown"],
    ["contexts: search", "type", "function_12"], ["contexts: scroll", "scroll", 20_000],
    ["contexts: no search", "type", ""], ["contexts: hot path", "pressed", "Hot path"],
    ["contexts: functions", "pressed", "Functions"], ["contexts: callers", "pressed", "Callers"],
    ["contexts: sort callers", "click", "[data-sort=inclusive]"],
    ["contexts: search callers", "type", "function_7"], ["contexts: icicle", "pressed", "Icicle"],
  ]) await interact(page, session, act);
  const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
  line("memory of the page's script", heap / (1 << 20), "MiB");
  await page.close();
}

async function manyRanks(context, directory) {
  const job = await generated(directory, "many", {
    ranks: 100_000, contexts: 2000, cells: { rows: 512, columns: 256 }, rankBytes: 64 << 20,
  });
  console.log("100,000 ranks, 512 rows of the timeline");
  line("file", (await stat(job.page)).size / 1e6, "MB", LIMITS.file / 1e6);
  const begin = performance.now();
  const { page } = await opened(context, job.page, "#timeline");
  await page.waitForSelector("canvas.timeline");
  line("opens with its timeline", performance.now() - begin, "ms", LIMITS.open);
  await to(page, "#ranks");
  await page.waitForSelector("#view canvas");
  await page.close();
}

/** Milliseconds from the begin of the navigation until the verdict stands. */
function paint(page) {
  return page.evaluate(() => {
    return performance.getEntriesByName("verdict")[0].startTime;
  });
}

console.log(`load of the machine: ${loadavg()[0].toFixed(1)}`);
const space = await workspace();
try {
  const context = await browser(space.directory);
  await install(context);
  await large(context, space.directory);
  await manyRanks(context, space.directory);
  await context.close();
} finally {
  await space.close();
}
process.exitCode = failed > 0 ? 1 : 0;
