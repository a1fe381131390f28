// The page of a comparison in a browser: what it shows equals the JSON of the same comparison.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browser, comparisonOf, compared, opened, themesAndPaper, workspace } from "./pages.mjs";
import { percent, seconds } from "./wording.mjs";

let space, context, strong, versions, counted;

before(async () => {
  space = await workspace();
  context = await browser(space.directory);
  const files = [1, 2, 4, 8, 16].map((ranks) => comparisonOf(`strong-${ranks}.plimsoll.json`));
  strong = compared(space.directory, "strong", files);
  counted = compared(space.directory, "counted", [
    withCounts(files[0], 10e9, 5e9), withCounts(files[2], 12.5e9, 10e9),
  ]);
  versions = compared(space.directory, "versions", twoVersions(files[4]), ["--fail-above", "3%"]);
});

after(async () => {
  await context?.close();
  await space?.close();
});

/** A run and a copy of it in which everything takes a tenth longer and a name is hostile. */
function twoVersions(file) {
  const summary = JSON.parse(readFileSync(file, "utf8"));
  summary.run.elapsed_s *= 1.1;
  for (const node of summary.tree.nodes) node.inclusive.sum_s *= 1.1;
  const slower = join(space.directory, "slower.plimsoll.json");
  for (const frame of summary.tree.frames) {
    if (frame.function === "perfect") frame.function = "</script><img src=x onerror=alert(1)>";
  }
  writeFileSync(slower, JSON.stringify(summary));
  return [file, slower];
}

/** A copy of a run in which the outermost function has these numbers of events. */
function withCounts(file, instructions, cycles) {
  const summary = JSON.parse(readFileSync(file, "utf8"));
  const ranks = summary.run.ranks === 1 ? "0" : `0-${summary.run.ranks - 1}`;
  const count = (sum) => ({ inclusive: { sum } });
  summary.counters = {
    events: ["instructions", "cycles"].map((name) => ({ name, total: 1, ranks, refused: null })),
    contexts: [{ node: 0, events: { instructions: count(instructions), cycles: count(cycles) } }],
  };
  const copy = join(space.directory, `counted-${summary.run.ranks}.plimsoll.json`);
  writeFileSync(copy, JSON.stringify(summary));
  return copy;
}

/** Runs a test on an open page, and then holds that nothing went wrong in it. */
async function on({ page: path, comparison }, act) {
  const { page, problems } = await opened(context, path);
  try {
    await act(page, comparison);
    assert.deepEqual(problems, []);
  } finally {
    await page.close();
  }
}

function at(value, key) {
  return key.split(".").reduce((value, part) => value[part], value);
}

function cells(page, selector) {
  return page.$$eval(selector, (rows) => rows.map((row) => {
    return [...row.children].map((cell) => cell.textContent);
  }));
}

for (const name of ["strong", "versions"]) {
  test(`${name}: the verdict and its numbers are those of the JSON`, async () => {
    await on({ strong, versions }[name], async (page, comparison) => {
      assert.equal(await page.textContent(".gist"), comparison.verdict.headline);
      const shown = await page.$$eval("[data-key]", (all) => all.map((element) => {
        return [element.dataset.key, element.textContent];
      }));
      assert.ok(shown.length >= 7, `${shown.length} numbers`);
      for (const [key, text] of shown) {
        const value = at(comparison, key);
        assert.equal(text, key.endsWith("seconds") ? seconds(value) : percent(value), key);
      }
    });
  });

  test(`${name}: the contexts stand side by side with their excess`, async () => {
    await on({ strong, versions }[name], async (page, comparison) => {
      const rows = await cells(page, ".contexts tbody tr");
      assert.equal(rows.length, comparison.contexts.length);
      const falling = [...comparison.contexts].sort((one, other) => {
        return other.excess.inclusive - one.excess.inclusive;
      });
      for (const [index, { mean_s, excess, name, rest }] of falling.entries()) {
        assert.deepEqual(rows[index], [
          rest ? `${name} (rest)` : name, ...mean_s.map(seconds),
          ...[excess.inclusive, excess.exclusive, excess.by_class.work, excess.by_class.waiting,
            excess.by_class.communication, excess.by_class.io].map(percent),
        ]);
      }
    });
  });
}

test("counted instructions and cycles give the factors of computation scaling", async () => {
  await on(counted, async (page, { scaling }) => {
    const rows = (await cells(page, "#scaling tbody tr")).slice(scaling.length);
    assert.deepEqual(rows.map((row) => row.slice(1)), scaling.map((row) => [
      percent(row.computation_scaling), percent(row.instruction_scaling),
      percent(row.ipc_scaling), percent(row.frequency_scaling), row.ipc.toFixed(2),
    ]));
    assert.equal(scaling[1].instruction_scaling, 0.8);
  });
  await on(strong, async (page, { scaling }) => {
    assert.equal((await cells(page, "#scaling tbody tr")).length, scaling.length);
  });
});

test("findings, the scaling table and losses are those of the JSON", async () => {
  await on(strong, async (page, comparison) => {
    assert.equal(await page.locator(".card").count(), comparison.findings.length);
    for (const [index, finding] of comparison.findings.entries()) {
      const card = await page.locator(".card").nth(index).textContent();
      assert.ok(card.includes(finding.sentence) && card.includes(percent(finding.excess)), card);
    }
    const scaling = await cells(page, "#scaling tbody tr");
    assert.deepEqual(scaling.map((row) => row.slice(1)), comparison.scaling.map((row) => [
      seconds(row.elapsed_s), row.speedup.toFixed(2), percent(row.global), percent(row.parallel),
      percent(row.load_balance), percent(row.communication), percent(row.computation_scaling),
    ]));
    const losses = await cells(page, "#losses tbody tr");
    assert.deepEqual(losses.map((row) => [row[0], ...row.slice(4, 9)]), comparison.losses.map((loss) => {
      return [loss.change, ...loss.severity.map(percent)];
    }));
  });
});

test("a chosen context shows its growth, and its curve meets the predictions", async () => {
  await on(strong, async (page, comparison) => {
    const index = comparison.contexts.findIndex(({ name }) => name === "reduction");
    const { growth, total_s } = comparison.contexts[index];
    await page.click(`#context-${index}`);
    const details = await page.textContent(".context");
    assert.ok(details.includes(growth.model) && details.includes(seconds(total_s[4])), details);
    for (const { value_s, low_s, high_s } of growth.predictions) {
      for (const value of [value_s, low_s, high_s]) assert.ok(details.includes(seconds(value)));
    }
    const last = growth.curve.at(-1), predicted = growth.predictions.at(-1);
    assert.ok(Math.abs(last.value_s / predicted.value_s - 1) < 1e-9);
    for (const { low_s, value_s, high_s } of growth.curve) assert.ok(low_s <= value_s && value_s <= high_s);
    // Each point is drawn within the canvas: the arrow keys read them out.
    await page.focus(".context canvas");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.textContent(".context .tip"), `1 ranks: ${seconds(total_s[0])}`);
  });
});

test("columns sort both ways, the search filters, keys lead through rows and sections", async () => {
  await on(strong, async (page, comparison) => {
    const column = comparison.setups.length - 1;
    const shown = async () => (await cells(page, ".contexts tbody tr")).map((row) => row[column + 1]);
    const falling = comparison.contexts.map(({ mean_s }) => mean_s[column]).sort((a, b) => b - a);
    const button = page.locator(`.contexts th[data-column="${column}"] button`);
    await button.click();
    assert.deepEqual(await shown(), falling.map(seconds));
    await button.click();
    assert.deepEqual(await shown(), falling.reverse().map(seconds));
    await page.keyboard.press("/");
    await page.keyboard.type("reduction");
    const names = (await cells(page, ".contexts tbody tr")).map((row) => row[0]);
    assert.ok(names.length >= 1 && names.length < comparison.contexts.length, names.join());
    await page.fill("#search", "");
    await page.locator(".contexts tbody tr").first().focus();
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.locator(".contexts tbody tr").nth(1).getAttribute("aria-selected"), "true");
    await page.keyboard.press("1");
    assert.equal(await page.evaluate(() => document.activeElement.id), "verdict");
  });
});

test("two versions: differences against the noise, and names are text", async () => {
  await on(versions, async (page, comparison) => {
    assert.equal(comparison.verdict.failed, true);
    assert.match(await page.textContent(".problem"), /Limit 3\.0.%, measured 10.%: failed/);
    const { elapsed, contexts } = comparison.regression;
    const rows = await cells(page, "#differences tbody tr");
    assert.deepEqual(rows.map((row) => [row[1], row[2], row[7]]), [elapsed, ...contexts].map((it) => {
      return [seconds(it.before_s), seconds(it.after_s), it.significant ? "differs" : ""];
    }));
    assert.equal(await page.locator("img").count(), 0);
    assert.ok((await page.textContent("main")).includes("<img src=x onerror=alert(1)>"));
  });
});

test("a change of the system's theme draws the page once", async () => {
  await on(strong, async (page) => {
    await page.click(".theme");
    await page.click(".theme");
    await page.evaluate(() => {
      window.changes = 0;
      document.addEventListener("themechange", () => (window.changes += 1));
    });
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => window.changes > 0);
    assert.equal(await page.evaluate(() => window.changes), 1);
  });
});

test("light and dark, and paper", async () => {
  await on(strong, themesAndPaper);
});
