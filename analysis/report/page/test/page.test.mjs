// The page in a browser: what it shows equals the summary, and every way through it works.
import assert from "node:assert/strict";
import { utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { summary as invented, writeRankTable, writeRanks } from "./generated.mjs";
import {
  browser, generated, held, made, opened, real, recorded, themesAndPaper, to, workspace,
} from "./pages.mjs";
import { calls, count, percent, rounded, seconds } from "./wording.mjs";

/** How the page explains the rows of ICS18's Table 2. */
const SEGMENT_MEANINGS = {
  1: "Much waiting: look", 2: "Uneven parts that even each other out", 3: "Load imbalance: look",
  4: "Uneven parts and much waiting", 5: "Load imbalance and much waiting",
};

let space, context;
const jobs = {};

before(async () => {
  space = await workspace();
  context = await browser(space.directory);
  jobs.imbalance = await real(space.directory, "imbalance");
  jobs.lammps = await real(space.directory, "lammps");
  const cells = { rows: 16, columns: 128 };
  jobs.generated = await generated(space.directory, "generated",
    { ranks: 16, contexts: 3000, cells, rankBytes: 1 << 20 });
});

after(async () => {
  await context?.close();
  await space?.close();
});

const on = (job, hash, act) => held(context, job, hash, act);

function at(summary, key) {
  return key.split(".").reduce((value, part) => value[part], summary);
}

/** The rows of contexts that are in sight: name, context, and the text of each column. */
function rows(page) {
  return page.$$eval(".rows .row", (all) => all.map((row) => ({
    node: Number(row.dataset.node),
    level: Number(row.getAttribute("aria-level")),
    name: row.querySelector(".label").textContent,
    cells: Object.fromEntries([...row.querySelectorAll("[data-column]")].map((cell) => {
      return [cell.dataset.column, cell.textContent];
    })),
  })));
}

for (const name of ["imbalance", "lammps", "generated"]) {
  test(`${name}: the numbers of the verdict are the summary's`, async () => {
    await on(jobs[name], "", async (page, summary) => {
      const shown = await page.$$eval("[data-key]", (all) => all.map((element) => {
        return [element.dataset.key, element.textContent];
      }));
      assert.ok(shown.length > 8, `${shown.length} numbers`);
      for (const [key, text] of shown) {
        const value = at(summary, key);
        const isFraction = key.startsWith("efficiency.") || key.endsWith(".severity");
        const expected = isFraction ? percent(value)
          : key.startsWith("collection.") ? count(value) : seconds(value);
        assert.equal(text, expected, key);
      }
      assert.equal(await page.locator(".card").count(), summary.losses.length);
      for (const [index, loss] of summary.losses.entries()) {
        const card = await page.locator(".card").nth(index).textContent();
        assert.ok(card.includes(loss.advice), card);
        assert.ok(card.includes(seconds(loss.symptom.mean_s)) ||
          card.includes(seconds(loss.symptom.max_s)), card);
        for (const cause of loss.causes) {
          assert.ok(card.includes(cause.path.at(-1).function) ||
            card.includes(`:${cause.path.at(-1).line}`), card);
        }
      }
    });
  });

  test(`${name}: the numbers of the call paths are the tree's`, async () => {
    await on(jobs[name], "#contexts", async (page, summary) => {
      await page.waitForSelector(".rows .row");
      const shown = await rows(page);
      assert.ok(shown.length > 3);
      for (const { node, cells } of shown) {
        const expected = summary.tree.nodes[node];
        for (const [column, value] of [
          ["inclusive", expected.inclusive.mean_s], ["exclusive", expected.exclusive.mean_s],
          ["slowest", expected.inclusive.max_s], ["imbalance", expected.imb_s],
          ["wait", expected.wait_s], ["blame", expected.blame_exclusive_s],
        ]) assert.ok(rounded(value).includes(cells[column]), `${node} ${column}: ${cells[column]}`);
        assert.equal(cells.calls, calls(expected), `calls of ${node}`);
        assert.equal(cells.ranks, count(expected.inclusive.ranks));
      }
    });
  });

  test(`${name}: the loops and phases are the summary's`, async () => {
    await on(jobs[name], "#loops", async (page, summary) => {
      if (summary.loops.length > 0) {
        const text = await page.locator("#view").textContent();
        for (const loop of summary.loops) {
          assert.ok(text.includes(seconds(loop.mean_duration_s)), seconds(loop.mean_duration_s));
          assert.ok(text.includes(percent(loop.fraction)));
        }
      }
      await to(page, "#phases");
      await page.waitForSelector("#view table");
      const phases = await page.locator("#view table").first().locator("tbody tr").allTextContents();
      assert.equal(phases.length, summary.phases.length);
      for (const phase of summary.phases) {
        assert.ok(phases.some((row) => row.includes(seconds(phase.duration_s)) &&
          row.includes(count(phase.instances))), `phase ${phase.id}`);
      }
      const segments = page.locator("table", { has: page.locator("text=Inefficient segments") });
      for (const [at, { row }] of summary.segments.entries()) {
        const text = await segments.locator("tbody tr").nth(at).textContent();
        assert.ok(text.includes(`${SEGMENT_MEANINGS[row]}`) && text.includes(`(row ${row})`), text);
      }
    });
  });
}

test("columns sort, both ways", async () => {
  await on(jobs.generated, "#contexts", async (page, summary) => {
    const children = summary.tree.nodes.map((node, index) => ({ node, index }))
      .filter(({ node }) => node.parent === 0);
    for (const [id, value] of [
      ["exclusive", (node) => node.exclusive.mean_s], ["calls", (node) => node.calls],
      ["wait", (node) => node.wait_s], ["inclusive", (node) => node.inclusive.mean_s],
    ]) {
      for (const sign of [-1, 1]) {
        await page.click(`[data-sort="${id}"]`);
        const order = (await rows(page)).filter(({ level }) => level === 2).map(({ node }) => node);
        const values = order.map((node) => Math.fround(value(summary.tree.nodes[node])));
        const sorted = [...values].sort((a, b) => sign * (a - b));
        assert.deepEqual(values, sorted, `${id} ${sign}`);
        if (sign === -1 && order.length > 1) {
          const most = Math.max(...children.map(({ node }) => value(node)));
          assert.equal(values[0], Math.fround(most), id);
        }
      }
    }
  });
});

test("the search shows matches and the paths to them, and nothing else", async () => {
  await on(jobs.lammps, "#contexts", async (page, summary) => {
    await page.keyboard.press("/");
    await page.waitForFunction(() => document.activeElement?.id === "search");
    await page.keyboard.type("mpi_allreduce");
    await page.waitForFunction(() => /match/.test(document.querySelector(".found").textContent));
    const matches = summary.tree.nodes.filter(({ frame }) => {
      return summary.tree.frames[frame].function === "MPI_Allreduce";
    });
    assert.ok(matches.length > 1);
    const said = await page.textContent(".found");
    assert.ok(Number.parseInt(said, 10) >= matches.length, said);
    const shown = await rows(page);
    assert.ok(shown.some(({ name }) => name === "MPI_Allreduce"));
    assert.ok(!shown.some(({ name }) => name === "MPI_Irecv"));
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.includes("node="));
    assert.match(await page.textContent(".details h2"), /MPI_Allreduce/);
    await page.fill("#search", "no such name");
    await page.waitForFunction(() => document.querySelectorAll(".rows .row").length === 0);
  });
});

test("closing all contexts removes the chosen one and the search from the address", async () => {
  await on(jobs.generated, "#contexts?node=1&search=module1&sort=calls", async (page) => {
    await page.getByText("Close all").click();
    assert.equal(await page.evaluate(() => location.hash), "#contexts?sort=calls");
    assert.equal(await page.inputValue("#search"), "");
    assert.equal(await page.locator(".details").isVisible(), false);
  });
});

test("recursion counts once in the callers and flat views, and sums of maxima are bounds", async () => {
  const summary = invented({ ranks: 4, contexts: 1, losses: 0 });
  const name = (text) => ({ ...summary.tree.frames[0], function: text });
  const time = (mean) => ({ ...summary.tree.nodes[0].inclusive, mean_s: mean, max_s: mean, ranks: 4 });
  const node = (parent, frame, inclusive, exclusive) => ({
    ...summary.tree.nodes[0], parent, frame, inclusive: time(inclusive), exclusive: time(exclusive),
  });
  summary.tree.frames = ["main", "f", "g"].map(name);
  // main > f > g > f, and main > g.
  summary.tree.nodes = [
    node(null, 0, 10, 1), node(0, 1, 6, 2), node(1, 2, 4, 1), node(2, 1, 3, 3), node(0, 2, 3, 3),
  ];
  await on(await made(space.directory, "recursive", summary), "#contexts?mode=flat", async (page) => {
    await page.waitForSelector(".rows .row");
    for (const mode of ["flat", "callers"]) {
      await to(page, `#contexts?mode=${mode}`);
      await page.waitForFunction((mode) => {
        const pressed = document.querySelector(".controls [aria-pressed=true]").textContent;
        return pressed === { flat: "Functions", callers: "Callers" }[mode];
      }, mode);
      const shown = Object.fromEntries((await rows(page)).map((row) => [row.name, row.cells]));
      assert.equal(shown.f.inclusive, seconds(6), mode);
      assert.equal(shown.f.exclusive, seconds(5), mode);
      assert.equal(shown.g.inclusive, seconds(7), mode);
      assert.equal(shown.g.exclusive, seconds(4), mode);
      assert.equal(shown.g.slowest, `\u2264\u00a0${seconds(7)}`, mode);
      assert.equal(shown.main.slowest, seconds(10), mode);
    }
    // g is called by f and by main.
    const g = page.locator(".rows .row", { hasText: /^\S*g/ }).first();
    await g.locator(".twist").click();
    const below = (await rows(page)).filter(({ level }) => level === 2);
    assert.deepEqual(below.map(({ name, cells }) => [name, cells.inclusive]).sort(),
      [["f", seconds(4)], ["main", seconds(3)]]);
  });
});

test("a loss leads to its ranks, contexts and times, and the address can be shared", async () => {
  await on(jobs.generated, "", async (page, summary) => {
    const loss = summary.losses[1];
    const link = (name) => page.locator(".card").nth(1).getByText(name);
    await link("Who: ranks").click();
    await page.waitForSelector("#view canvas");
    assert.match(page.url(), /#ranks\?loss=1&node=/);
    const said = await page.locator("#view .plain").first().textContent();
    assert.ok(said.includes(`most on rank ${summary.run.ranks - 1}`), said);
    await page.goBack();
    await page.waitForSelector(".card");
    await link("Where: call paths").click();
    await page.waitForSelector(".row.current");
    assert.equal(await page.getAttribute(".row.current", "data-node"), String(loss.causes[0].node));
    assert.match(await page.textContent(".row.current"), /cause/);
    const address = page.url();
    await page.goBack();
    await link("When: timeline").click();
    await page.waitForSelector("canvas.timeline");
    assert.equal(await page.locator('[aria-label="Loss to highlight"] option:checked').textContent(),
      (await page.locator('[aria-label="Loss to highlight"] option').nth(2).textContent()));
    const other = await opened(context, jobs.generated.page, new URL(address).hash);
    await other.page.waitForSelector(".row.current");
    assert.equal(await other.page.getAttribute(".row.current", "data-node"),
      String(loss.causes[0].node));
    await other.page.close();
  });
});

test("the timeline zooms by keys, wheel and drag, and names the cell under the pointer", async () => {
  await on(jobs.generated, "#timeline?order=rank", async (page, summary) => {
    const canvas = page.locator("canvas.timeline");
    const span = () => page.evaluate(() => {
      const parts = new URLSearchParams(location.hash.split("?")[1]);
      return [Number(parts.get("from")), Number(parts.get("to"))];
    });
    const whole = summary.run.elapsed_s;
    await canvas.focus();
    await page.keyboard.press("+");
    let [from, to] = await span();
    assert.ok(Math.abs(to - from - whole / 2) < 1e-6, `${from} ${to}`);
    await page.keyboard.press("ArrowRight");
    assert.ok((await span())[0] > from);
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 30);
    await page.mouse.wheel(0, -100);
    await page.waitForFunction((before) => {
      const parts = new URLSearchParams(location.hash.split("?")[1]);
      return Number(parts.get("to")) - Number(parts.get("from")) < before - 1;
    }, to - from);
    await canvas.focus();
    await page.keyboard.press("0");
    [from, to] = await span();
    assert.deepEqual([from, to], [0, whole]);
    await page.mouse.move(box.x + 92 + (box.width - 92) * 0.25, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + 92 + (box.width - 92) * 0.5, box.y + 30);
    await page.mouse.up();
    [from, to] = await span();
    assert.ok(Math.abs(from - whole / 4) < whole / 100 && Math.abs(to - whole / 2) < whole / 100);
    const under = await page.textContent(".under");
    assert.match(under, /rank 0/);
    assert.match(under, /waiting \d+/);
  });
});

test("the ranks show every metric, with the mean of the tree", async () => {
  await on(jobs.generated, "#ranks?loss=0", async (page, summary) => {
    const { ranks } = summary.run;
    const { nodes } = summary.tree;
    const below = (node) => nodes.map((_, index) => index).filter((index) => {
      let at = index;
      while (at !== null && at > node) at = nodes[at].parent;
      return at === node;
    });
    const [cause, symptom] = [summary.losses[0].causes[0].node, summary.losses[0].symptom.node];
    for (const [node, id, value, text] of [
      [cause, "inclusive_s", nodes[cause].inclusive.mean_s, seconds],
      [cause, "exclusive_s", nodes[cause].exclusive.mean_s, seconds],
      [symptom, "calls", nodes[symptom].calls / ranks, count],
      [0, "wait", below(0).reduce((sum, index) => sum + nodes[index].idle_s, 0), seconds],
    ]) {
      await to(page, `#ranks?node=${node}&quantity=${id}`);
      await page.waitForFunction((id) => {
        const pressed = document.querySelector('[aria-label="Metric"] [aria-pressed=true]');
        return pressed?.textContent.toLowerCase() === id.replace("_s", "");
      }, id);
      const said = await page.locator(".extremes li").first().textContent();
      assert.ok(rounded(value, text).some((value) => said.endsWith(`mean ${value}`)),
        `${id}: ${said}, not ${text(value)}`);
    }
  });
});

test("the ranks' waiting and blame have the means of a real tree", async () => {
  const summary = await recorded("lammps");
  summary.per_rank.file = "blamed.plimsoll.npz";
  await writeRanks(join(space.directory, summary.per_rank.file), summary, 64 << 20);
  const job = await made(space.directory, "blamed", summary);
  await on(job, "#ranks", async (page) => {
    const order = summary.tree.nodes.map((node, index) => ({ node, index }))
      .filter(({ node }) => node.blame_inclusive_s > 0 && node.idle_s > 0)
      .sort((a, b) => b.node.blame_inclusive_s - a.node.blame_inclusive_s);
    assert.ok(order.length > 3);
    for (const { node, index } of [...order.slice(0, 4), ...order.slice(-2)]) {
      for (const [id, value] of [["wait", node.idle_s], ["blame", node.blame_inclusive_s]]) {
        await to(page, `#ranks?node=${index}&quantity=${id}`);
        await page.waitForFunction((id) => document.querySelector(
          '[aria-label="Metric"] [aria-pressed=true]')?.textContent.toLowerCase() === id, id);
        const said = await page.locator(".extremes li").first().textContent();
        const mean = /mean (.*)$/.exec(said)[1];
        assert.ok(rounded(value).includes(mean), `${id} of ${index}: ${mean}, not ${seconds(value)}`);
      }
    }
  });
});

test("the user gives the page the file of the ranks' times", async () => {
  const summary = invented({ ranks: 4, contexts: 30 });
  summary.per_rank.file = "later.plimsoll.npz";
  const job = await made(space.directory, "later", summary);
  const file = join(space.directory, summary.per_rank.file);
  const times = (rank, node) => (node === 3 ? [5, 1, 2, 8][rank] : 0);
  const none = () => 0;
  await writeRankTable(file, 4, [0, 3], { inclusive_s: times, exclusive_s: none, calls: none });
  await on(job, "#ranks?node=3&quantity=inclusive_s", async (page) => {
    await page.locator(".chooser input").setInputFiles(file);
    const said = await page.locator(".extremes li").first().textContent();
    const words = `most on rank 3 (${seconds(8)}), least on rank 1 (${seconds(1)})`;
    assert.ok(said.includes(words), said);
  });
});

/** Opens the longest iteration of a job; returns what is said of its lines, and the span about it. */
async function longest(page) {
  await page.locator(".worst a").first().click();
  await page.waitForSelector("canvas.timeline");
  assert.match(page.url(), /loop=0&iteration=137/);
  const said = await page.locator("#view .aside").first().textContent();
  await page.locator("canvas.timeline").focus();
  await page.keyboard.press("-");
  const parts = new URLSearchParams(new URL(page.url()).hash.split("?")[1]);
  assert.equal(parts.get("iteration"), null);
  return { said, middle: (Number(parts.get("from")) + Number(parts.get("to"))) / 2 };
}

test("the longest iteration leads to its time", async () => {
  await on(jobs.generated, "#loops", async (page, summary) => {
    const { said, middle } = await longest(page);
    assert.match(said, /One line each, where samples .* saw them begin. 3.iterations could not/);
    assert.ok(Math.abs(middle - (summary.loops[0].begins_s[137] + 9 / 2)) < 0.01, `${middle}`);
  });
});

test("begins that nobody saw are added up from durations", async () => {
  const job = await generated(space.directory, "unseen", {
    ranks: 16, contexts: 200, cells: { rows: 16, columns: 200 }, hasBegins: false,
  });
  await on(job, "#loops", async (page, summary) => {
    const { said, middle } = await longest(page);
    assert.match(said, /One line each, added up from their mean durations, to within/);
    // The loop takes 0.9 of the run, and the iteration is the 138th of 200, eight times as long.
    const { durations_s, mean_duration_s } = summary.loops[0];
    const sum = durations_s.reduce((sum, duration) => sum + duration, 0);
    const before = durations_s.slice(0, 137).reduce((sum, duration) => sum + duration, 4.5);
    const inLoop = (before / sum) * mean_duration_s;
    const slack = summary.run.elapsed_s - mean_duration_s;
    assert.ok(middle >= inLoop && middle <= inLoop + slack + 2 * 9, `${middle} ${inLoop}`);
  });
});

test("a loop has as many iterations as in the text", async () => {
  const summary = await recorded("imbalance");
  summary.loops = summary.loops.slice(0, 1);
  const [loop] = summary.loops;
  Object.assign(loop, { mean_duration_s: 0.75, executions: 1 });
  for (const [calls_seen, exact, number, mean] of [
    [30, true, "30", "25.0.ms"], [null, true, "25", "30.0.ms"], [30, false, "20", "at most 37.5.ms"],
  ]) {
    loop.iterations = { accepted: 20, rejected: 5, calls_seen, exact };
    const job = await made(space.directory, `counted-${calls_seen}-${exact}`, summary);
    await on(job, "#loops?loop=0", async (page) => {
      const said = await page.locator("#view p").first().textContent();
      assert.match(said, new RegExp(`${exact ? ": " : "at least "}${number}.iterations`));
      assert.match(said, new RegExp(`, ${mean} each on average`));
      const listed = await page.locator("#view table").last().locator("tbody tr").first().textContent();
      assert.match(listed, new RegExp(number));
    });
  }
});

test("iterations that are not told apart keep the numbers of the others", async () => {
  const summary = await recorded("imbalance");
  const [loop] = summary.loops;
  loop.durations_s = [0.1, 0.3, 0.2];
  Object.assign(loop, { first_iterations: "0,2,4", stride: 1, begins_s: [], clusters: [] });
  for (const [accepted, worst] of [
    [5, /: 2 \(0.3.*, 4 \(0.2.*, 0 \(0.1/],
    // A number that is not below the bound is not shown.
    [3, /: 0.30.s, 0.20.s, 0.10.s;/],
  ]) {
    loop.iterations = { accepted, rejected: 2, calls_seen: null, exact: false };
    const job = await made(space.directory, `apart-${accepted}`, summary);
    await on(job, "#loops?loop=0", async (page) => {
      assert.match(await page.locator(".worst").textContent(), worst);
    });
  }
});

test("an address opens the view that it was copied from", async () => {
  for (const [hash, selector, expected] of [
    ["#timeline?loss=1&from=50&to=100&order=node&colour=wait", ".controls [aria-pressed=true]",
      ["By node", "Waiting"]],
    ["#contexts?mode=callers&sort=calls", ".controls [aria-pressed=true]", ["Callers"]],
    ["#contexts?mode=flat&search=module1", ".found", [/^\d+ match/]],
    ["#contexts?mode=icicle&node=3", ".details h2", [/./]],
    ["#ranks?node=3&quantity=exclusive_s", ".controls [aria-pressed=true]", ["Exclusive"]],
    ["#loops?loop=0", "[aria-current=true]", [/loop|module/]],
    ["#phases?loss=0", "strong", [/^0/]],
    ["#run", "h2", ["Run", "Measurement", "Threads", "Clocks", "Notes", "Settings"]],
    ["#verdict?loss=2", ".card.chosen .number", ["3"]],
  ]) {
    await on(jobs.generated, hash, async (page) => {
      await page.waitForSelector(`#view ${selector}`, { state: "attached" });
      const shown = await page.locator(`#view ${selector}`).allTextContents();
      assert.equal(shown.length, expected.length, `${hash}: ${shown}`);
      expected.forEach((text, at) => {
        if (typeof text === "string") assert.equal(shown[at], text, hash);
        else assert.match(shown[at].replace("\u00a0", " "), text, hash);
      });
      assert.equal(new URL(page.url()).hash, hash);
    });
  }
});

test("lines of source stand with their context, and say when they may be others", async () => {
  const file = join(space.directory, "kernel.c");
  const lines = Array.from({ length: 40 }, (_, index) => `int line_${index + 1}; // <b>&amp;`);
  await writeFile(file, lines.join("\n"));
  const summary = invented({ ranks: 4, contexts: 30 });
  summary.tree.frames = summary.tree.frames.map((frame) => ({ ...frame, kind: "loop", file, line: 20 }));
  const job = await made(space.directory, "sources", summary);
  await on(job, "#contexts?node=0", async (page) => {
    await page.waitForSelector(".source pre");
    assert.equal(await page.textContent(".source mark"), `   20  ${lines[19]}`);
    const text = await page.textContent(".source pre");
    for (const [number, expected] of [[15, false], [16, true], [24, true], [25, false]]) {
      assert.equal(text.includes(`line_${number};`), expected, `line ${number}`);
    }
    assert.equal(await page.locator(".source .doubt").count(), 0);
  });
  const old = join(space.directory, "program");
  await writeFile(old, "");
  await utimes(old, 1, 1);
  summary.run.executable = old;
  for (const frame of summary.tree.frames) frame.module = "program";
  await on(await made(space.directory, "newer", summary), "#contexts?node=0", async (page) => {
    await page.waitForSelector(".source .doubt");
    assert.match(await page.textContent(".source .doubt"), /newer than the program/);
  });
});

test("threads and clocks are the summary's", async () => {
  const summary = invented({ ranks: 4, contexts: 30 });
  summary.thread_clusters = [
    { ranks: "0-3", size: 12, routine: "worker", mean_s: 8, work_s: 6, distance: 0.5 },
    { ranks: "2", size: 1, routine: null, mean_s: 4, work_s: 0.5, distance: null },
  ];
  await on(await made(space.directory, "threads", summary), "#run", async (page) => {
    const rows = page.locator("#view table").first().locator("tbody tr");
    assert.deepEqual(await rows.nth(0).locator("td").allTextContents(),
      ["worker", "12", "0-3", seconds(8), seconds(6), seconds(2), percent(0.25), percent(0.5)]);
    assert.deepEqual(await rows.nth(1).locator("td").allTextContents(),
      ["unknown", "1", "2", seconds(4), seconds(0.5), seconds(3.5), percent(0.875), "\u2013"]);
    const text = await page.textContent("#view");
    assert.ok(text.includes(`Aligned by regions to rank 0; ${seconds(3.5e-6)}`));
    const canvas = page.locator("#view canvas");
    await canvas.focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator(".tip").textContent(),
      `rank 0: ${seconds(summary.clocks.offsets_us[0] * 1e-6)}`);
  });
});

test("the threads of processes are the summary's", async () => {
  const summary = await recorded("imbalance");
  const times = (number, work_s, threads = 1) => ({ number, threads, work_s, time_s: 3 });
  const role = (role, threads, work_s) => ({
    role, ranks: "0-3", threads, work_s, min_work_s: work_s / 2, max_work_s: 2 * work_s, time_s: 3,
  });
  const [node] = summary.tree.nodes.keys();
  summary.threads = {
    aggregation: "key",
    roles: [role("initial", 4, 0.25), role("slowest", 4, 1.75), role("fastest", 4, 0.5)],
    processes: [0, 1, 2, 3].map((rank) => ({
      rank, threads: 3, classes: null,
      key: { initial: times(0, 0.25), slowest: times(2, 1.5 + rank / 8), fastest: times(1, 0.5), rest: null },
    })),
    unlisted: 7,
    distinction: { node, path: [summary.tree.frames[summary.tree.nodes[node].frame]],
      slowest_s: 1.75, fastest_s: 0.5 },
  };
  const job = await made(space.directory, "threads", summary);
  await on(job, "#ranks", async (page) => {
    const panel = page.locator(".threads");
    const rows = await panel.locator("tbody tr").allTextContents();
    assert.deepEqual(rows.map((row) => row.replaceAll("\u00a0", " ")), [
      `initial4all ranks${seconds(0.25)}${seconds(0.125)}${seconds(0.5)}${seconds(3)}${percent(0.25 / 3)}`,
      `slowest4all ranks${seconds(1.75)}${seconds(0.875)}${seconds(3.5)}${seconds(3)}${percent(1.75 / 3)}`,
      `fastest4all ranks${seconds(0.5)}${seconds(0.25)}${seconds(1)}${seconds(3)}${percent(0.5 / 3)}`,
    ].map((row) => row.replaceAll("\u00a0", " ")));
    const said = (await panel.textContent()).replaceAll("\u00a0", " ");
    assert.match(said, /PLIMSOLL_THREADS=key.*Left out: 7 processes/);
    assert.match(said, /compute longer in .*main.*: 1\.75.*, and the fastest 0\.5/);
    // The slowest thread of rank 3 is the highest point.
    const canvas = panel.locator("canvas");
    await canvas.scrollIntoViewIfNeeded();
    const box = await canvas.boundingBox();
    const tips = new Set();
    for (let x = 60; x < box.width; x += 12) {
      for (let y = 8; y < box.height - 30; y += 12) {
        await page.mouse.move(box.x + x, box.y + y);
        tips.add(await panel.locator(".tip").textContent().catch(() => ""));
      }
      if ([...tips].some((tip) => tip.includes("rank 3, thread 2 (slowest)"))) break;
    }
    const tip = [...tips].find((tip) => tip.includes("rank 3, thread 2 (slowest)"));
    assert.ok(tip?.replaceAll("\u00a0", " ").includes(seconds(1.875).replaceAll("\u00a0", " ")), `${[...tips]}`);
    await panel.locator("a").click();
    assert.match(page.url(), new RegExp(`contexts\\?.*node=${node}`));
  });
  await on(jobs.imbalance, "#ranks", async (page) => {
    assert.equal(await page.locator(".threads").count(), 0);
  });
});

/** A summary with two parallel regions and a kind of tasks. */
async function hybrid() {
  const summary = await recorded("imbalance");
  const share = (number, work_s) => ({ number, work_s, barrier_s: 0.125, lock_s: 0, mpi_s: 0 });
  const region = (line, node, idle_s) => ({
    node, function: `main._omp_fn.${line}`, file: "/src/solve.c", line, level: 0, ranks: "0-3",
    threads: 4, instances: 40, elapsed_s: 10, median_s: 0.02, thread_s: 40, work_s: 40 - idle_s, imbalance_s: 2,
    max_imbalance_s: 1, scheduling_s: 1, load_balance_s: idle_s - 1, barrier_s: 0.5, lock_s: 0.25,
    mpi_s: 0, shares: [share(0, 9), share(1, 8), share(2, 7), share(3, 4)],
  });
  summary.openmp = {
    runtime: "libgomp.so.1", unmeasured: 3,
    regions: [region(12, 2, 12), region(40, 1, 4)],
    tasks: [{ function: "sort._omp_fn.2", file: null, line: null, ranks: "0", count: 8, work_s: 2,
      longest_s: 0.75, median_s: 0.125 }],
  };
  return summary;
}

test("parallel regions, their threads and tasks are the summary's", async () => {
  const summary = await hybrid();
  const job = await made(space.directory, "hybrid", summary);
  const plain = (text) => text.replaceAll("\u00a0", " ");
  await on(job, "#ranks?region=1", async (page) => {
    const panel = page.locator(".regions");
    const [regions, tasks] = await Promise.all([0, 1].map((at) => {
      return panel.locator("table").nth(at).locator("tbody tr").allTextContents();
    }));
    const caller = /solve\.c:12 in \S+/;
    assert.match(regions[0], caller);
    const of = (time) => plain(`${seconds(time)} (${percent(time / 40)})`);
    for (const [row, idle] of [[regions[0], 12], [regions[1], 4]]) {
      assert.ok(plain(row).endsWith(["all ranks", "4", "40", plain(seconds(0.25)), plain(seconds(0.02)), of(idle), of(idle - 1), of(1),
        of(0.5), of(0.25), of(0)].join("")), row);
    }
    assert.equal(plain(tasks[0]), plain(["sort._omp_fn.2", "rank 0", "8", seconds(0.25), seconds(0.125), seconds(0.75),
      seconds(2)].join("")));
    assert.match(plain(await panel.textContent()), /libgomp\.so\.1.*3 instances could not be measured/);
    assert.match(plain(await panel.locator("h3").textContent()), /^Threads of solve\.c:40/);
    await panel.locator("table a").first().click();
    await page.waitForFunction(() => /solve\.c:12/.test(document.querySelector(".regions h3").textContent));
    // Keys lead over the work of the threads: the first has most.
    await panel.locator("canvas").focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(plain(await panel.locator(".tip").textContent()), `thread 0: ${plain(seconds(9))} work`);
    await page.keyboard.press("ArrowDown");
    assert.match(plain(await panel.locator(".tip").textContent()), /^thread 0: .* waiting for threads and tasks$/);
    await panel.locator(".links a").first().click();
    assert.match(page.url(), /contexts\?.*node=2/);
  });
});

test("keys lead through the views and the rows", async () => {
  await on(jobs.generated, "", async (page) => {
    const views = ["verdict", "timeline", "contexts", "ranks", "loops", "phases", "run"];
    for (const [index, view] of views.entries()) {
      await page.keyboard.press(String(index + 1));
      await page.waitForFunction((view) => {
        const place = document.getElementById("view");
        return place.dataset.view === view && place.childElementCount > 0;
      }, view);
    }
    await page.keyboard.press("3");
    await page.waitForSelector(".rows .row");
    await page.focus(".grid");
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    const second = await page.getAttribute(".row.current", "aria-rowindex");
    assert.equal(second, "3");
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.getAttribute(".row.current", "aria-level"), "1");
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.locator(".rows .row").count(), 1);
    await page.keyboard.press("ArrowRight");
    assert.ok((await page.locator(".rows .row").count()) > 1);
    await page.keyboard.press("Home");
    await page.keyboard.press("h");
    await page.waitForFunction(() => /node=\d/.test(location.hash));
  });
});

test("names from the program are text, whatever they hold", async () => {
  const hostile = "</script><img src=x onerror=alert(1)><b>&lt;${x}{{y}}\u202e\u0000";
  const summary = invented({ ranks: 4, contexts: 40 });
  const text = JSON.stringify(summary).replaceAll("Distribute its work more evenly.",
    JSON.stringify(hostile).slice(1, -1));
  const copy = JSON.parse(text);
  for (const frame of copy.tree.frames) frame.function = hostile;
  for (const loss of copy.losses) {
    for (const frame of [...loss.symptom.path, ...loss.causes[0].path]) frame.function = hostile;
  }
  Object.assign(copy.run, { executable: hostile, job: hostile, arguments: [hostile] });
  copy.run.nodes[0].host = hostile;
  copy.run.settings = { [hostile]: hostile };
  copy.notes = [hostile];
  await on(await made(space.directory, "hostile", copy), "", async (page) => {
    for (const view of ["contexts?node=3", "contexts?mode=icicle", "contexts?mode=callers", "ranks",
      "loops", "phases", "run", "verdict"]) {
      await to(page, `#${view}`);
      assert.equal(await page.locator("img, #view b, #view script").count(), 0, view);
    }
    assert.ok((await page.textContent(".advice")).includes("<img src=x onerror=alert(1)>"));
  });
});

test("a cause says whether it is more work or slower work", async () => {
  const difference = {
    kind: "more_work", share: 0.9, ranks: "3", time_factor: 2.07, instructions_factor: 2,
    ipc: 1.45, ipc_of_others: 1.5,
  };
  for (const [kind, text] of [
    ["more_work", "More work on rank 3: 2.00 times the instructions of the others in 2.07 times " +
      "the time (1.45 instructions per cycle, the others 1.50)."],
    ["slower_work", "Slower work on rank 3: 1.45 instructions per cycle, the others 1.50 (2.00 " +
      "times the instructions in 2.07 times the time)."],
  ]) {
    const summary = invented({ ranks: 4, contexts: 40 });
    assert.ok(summary.losses[0].causes.length > 0);
    summary.losses[0].causes[0].difference = { ...difference, kind };
    await on(await made(space.directory, kind, summary), "", async (page) => {
      const shown = await page.textContent(".card .difference");
      assert.equal(shown.replaceAll("\u00a0", " "), text);
    });
  }
});

test("a lock's holders stand with the loss", async () => {
  const summary = invented({ ranks: 4, contexts: 40 });
  const [loss] = summary.losses;
  loss.kind = "lock_contention";
  const path = loss.symptom.path.slice(0, 2);
  loss.holders = [{ path, node: 1, share: 0.6 }, { path, node: 2, share: 0.25 }];
  await on(await made(space.directory, "holders", summary), "", async (page) => {
    const plain = (text) => text.replaceAll("\u00a0", " ");
    const shown = page.locator(".card").first().locator("dt:text-is('Held by') + dd");
    assert.match(plain(await shown.textContent()), /60 % of the waiting.*25 % of the waiting/s);
    await shown.locator("a").first().click();
    assert.match(page.url(), /contexts\?.*node=1/);
  });
});

test("a page says plainly what it does not have", async () => {
  await on(jobs.imbalance, "#timeline", async (page) => {
    await page.waitForSelector(".missing");
    assert.match(await page.textContent(".missing"), /There is no timeline/);
    await to(page, "#ranks");
    assert.match(await page.locator(".missing").first().textContent(), /not in this page/);
    assert.match(await page.locator(".missing").last().textContent(), /no communication matrix/);
  });
});

test("light and dark, and paper", async () => {
  await on(jobs.generated, "", themesAndPaper);
});
