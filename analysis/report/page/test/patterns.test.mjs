// Biclusters as heat maps, and sampled ranks, in a browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { summary as invented, writeRankTable } from "./generated.mjs";
import { browser, held, made, workspace } from "./pages.mjs";
import { percent, seconds } from "./wording.mjs";

let space, context;
const on = (job, hash, act) => held(context, job, hash, act);
const plain = (text) => text.replaceAll("\u00a0", " ");

before(async () => {
  space = await workspace();
  context = await browser(space.directory);
});

after(async () => {
  await context?.close();
  await space?.close();
});

/** A job with these biclusters; `value` is a rank's exclusive time, or its events, in a context. */
async function patterned(name, ranks, biclusters, value, change = () => {}) {
  const summary = invented({ ranks, contexts: 40, losses: 0 });
  change(summary);
  summary.biclusters = biclusters;
  if (value) {
    summary.per_rank.file = `${name}.plimsoll.npz`;
    const nodes = [...new Set(biclusters.flatMap((group) => group.nodes))].sort((a, b) => a - b);
    const none = () => 0;
    await writeRankTable(join(space.directory, summary.per_rank.file), ranks, nodes, {
      inclusive_s: none, exclusive_s: value, calls: none, "faults.inclusive": none,
      "faults.exclusive": (rank, node) => value(rank, node) * 1000,
    });
  }
  return made(space.directory, name, summary);
}

const group = (nodes, ranks, others = {}) => {
  return { event: null, nodes, ranks, sign: 1, variance_share: 0.62, ...others };
};

/** The cells of a heat map, row by row: class of the colour, and text. */
function cells(map) {
  return map.locator("tbody tr").evaluateAll((rows) => rows.map((row) => {
    return [...row.querySelectorAll(".heat")].map((cell) => {
      return [cell.classList[1], cell.textContent || cell.getAttribute("aria-label")];
    });
  }));
}

// Ranks 2 and 5 take longer in two contexts, by 0.6 and 0.15 s; rank 7 less in the first.
const members = [2, 5];
const time = (rank, node) => {
  const more = members.includes(rank) ? (node === 3 ? 0.6 : 0.15) : 0;
  return 1 + more - (rank === 7 && node === 3 ? 0.4 : 0);
};

test("a bicluster is a heat map of its contexts over the ranks, its own ranks first", async () => {
  const job = await patterned("heat", 8, [group([1, 3], "2,5")], time);
  await on(job, "#ranks", async (page) => {
    const panel = page.locator(".biclusters");
    assert.match(plain(await panel.locator(".bicluster p").first().textContent()),
      /^Ranks 2, 5 spend more time than the others in .*: 62 % of the variance among ranks\.$/);
    const map = panel.locator(".heat-map");
    assert.equal(await map.count(), 1);
    const ranks = (await map.locator("th.rank").allTextContents()).map(Number);
    assert.deepEqual(ranks, [2, 5, 0, 1, 3, 4, 6, 7]);
    const sides = await map.locator("[scope=colgroup]").evaluateAll((all) => {
      return all.map(({ textContent, colSpan }) => [textContent, colSpan]);
    });
    assert.deepEqual(sides, [["Ranks\u00a02,5", 2], ["The others", 6]]);
    // The context with the larger variance first. Means: (8 + 2 x 0.6 - 0.4) / 8 and (8 + 0.3) / 8.
    const means = await map.locator("td.number").allTextContents();
    assert.deepEqual(means, [seconds(1.1), seconds(1.0375)]);
    const differences = [[0.5, 0.5, ...Array(5).fill(-0.1), -0.5],
      [0.1125, 0.1125, ...Array(6).fill(-0.0375)]];
    // Shades of the largest difference, 0.5 s: from a half, quarter, eighth and sixteenth on.
    const shades = [["more-4", "more-4", ...Array(5).fill("less-2"), "less-4"],
      ["more-2", "more-2", ...Array(6).fill("less-1")]];
    const shown = await cells(map);
    assert.deepEqual(shown.map((row) => row.map(([shade]) => shade)), shades);
    assert.deepEqual(shown.map((row) => row.map(([, text]) => text)), differences.map((row) => {
      return row.map((value) => (value > 0 ? "+" : "\u2212") + seconds(Math.abs(value)));
    }));
    const legend = plain(await panel.locator(".heat-legend").textContent());
    assert.match(legend, /^\u22120\.50 s .*\+0\.50 s: difference from the mean of the row/);
    // More and less have different colours, in light and dark.
    for (const _ of ["light", "dark"]) {
      const [more, less] = await Promise.all(["more-4", "less-4"].map((name) => {
        return map.locator(`.${name}`).first()
          .evaluate((cell) => getComputedStyle(cell).backgroundColor);
      }));
      assert.notEqual(more, less);
      await page.click(".theme");
    }
  });
});

test("keys lead over the cells of a heat map, and contexts are links with their path", async () => {
  const job = await patterned("keys", 8, [group([1, 3], "2,5")], time);
  await on(job, "#ranks", async (page, summary) => {
    const panel = page.locator(".biclusters");
    assert.equal(await panel.locator("td[tabindex='0']").count(), 1);
    const tip = async () => plain(await panel.locator(".tip").textContent());
    await panel.locator("td[tabindex='0']").focus();
    assert.match(await tip(), /^rank 2: 1\.60 s, 0\.50 s more than the mean in /);
    await page.keyboard.press("ArrowRight");
    assert.match(await tip(), /^rank 5: /);
    await page.keyboard.press("End");
    assert.match(await tip(), /^rank 7: 0\.60 s, 0\.50 s less than the mean in /);
    await page.keyboard.press("ArrowDown");
    assert.match(await tip(), /^rank 7: 1\.00 s, 37\.5 ms less than the mean in /);
    assert.equal(await panel.locator("td[tabindex='0']").count(), 1);
    const link = panel.locator("tbody th a").first();
    const path = await link.getAttribute("title");
    assert.ok(path.startsWith(`${summary.tree.frames[0].function} > `), path);
    await link.click();
    await page.waitForSelector(".row.current");
    assert.equal(await page.getAttribute(".row.current", "data-node"), "3");
  });
});

test("contexts that end in the same frame are named by the frame that tells them apart", async () => {
  const twice = ({ tree: { nodes } }) => {
    // main > [1] > [3] > [9] and main > [1] > [4] > [9].
    for (const [node, parent, frame] of [[1, 0, 7], [2, 1, 8], [3, 2, 9], [4, 1, 10], [5, 4, 9]]) {
      Object.assign(nodes[node], { parent, frame });
    }
  };
  const job = await patterned("ends", 8, [group([3, 5], "2,5")], time, twice);
  await on(job, "#ranks", async (page, summary) => {
    const names = await page.locator(".biclusters tbody th a").allTextContents();
    assert.equal(names.length, 2);
    const [one, other] = [8, 10].map((at) => summary.tree.frames[at].function);
    assert.ok(names[0].includes(one) && names[1].includes(other), names);
    const sentence = await page.locator(".bicluster p").first().textContent();
    assert.ok(sentence.includes(one) && sentence.includes(other), sentence);
  });
});

test("events have their own values, and contexts without values are named", async () => {
  const faults = group([1, 3], "2,5", { event: "faults" });
  const absent = group([1], "2,5", { event: "absent" });
  const job = await patterned("events", 8, [faults, absent], time);
  await on(job, "#ranks", async (page) => {
    const panel = page.locator(".biclusters");
    assert.equal(await panel.locator(".heat-map").count(), 1);
    assert.match(plain(await panel.textContent()), /Ranks 2, 5 have more faults than the others/);
    const [first] = await cells(panel.locator(".heat-map"));
    assert.deepEqual(first.slice(0, 3).map(([, text]) => text), ["+500", "+500", "\u2212100"]);
    assert.match(plain(await panel.locator(".heat-legend").textContent()), /\+500 faults: /);
    const last = panel.locator(".bicluster").last();
    assert.match(plain(await last.textContent()), /The page has no values of single ranks in \S/);
  });
});

test("a heat map of very many ranks is bounded, and says what its columns hold", async () => {
  const ranks = 20_000;
  // Each tenth rank of the first half.
  const value = (rank) => (rank < 10_000 && rank % 10 === 0 ? 2 : 1);
  const job = await patterned("many", ranks, [group([1, 2, 3], "0-9999:10")], value);
  await on(job, "#ranks", async (page) => {
    const panel = page.locator(".biclusters");
    const shown = await cells(panel.locator(".heat-map"));
    assert.equal(shown.length, 3);
    for (const row of shown) {
      const shades = row.map(([shade]) => shade);
      assert.deepEqual(shades, [...Array(32).fill("more-4"), ...Array(32).fill("even")]);
    }
    assert.equal(plain(await panel.locator("figure .aside").textContent()),
      "A column is the mean of neighbouring ranks: of the group up to 32 ranks, " +
      "of the others up to 594 ranks.");
    await panel.locator("td.heat").nth(32).hover();
    assert.match(plain(await panel.locator(".tip").textContent()),
      /^593 ranks from 1 to 658: 1\.00 s on average, 50\.0 ms less than the mean/);
  });
});

test("without times of single ranks a sentence says so", async () => {
  const job = await patterned("timeless", 8, [group([1, 3], "2,5")], null);
  await on(job, "#ranks", async (page) => {
    const panel = page.locator(".biclusters");
    assert.equal(await panel.locator(".heat-map").count(), 0);
    assert.match(await panel.locator(".missing").textContent(), /^The heat maps need the times of/);
    assert.match(plain(await panel.textContent()), /Ranks 2, 5 spend more time.*Contexts: /);
    assert.equal(await panel.locator("a").count(), 2);
  });
});

test("without biclusters and sampled ranks the page has no sections of them", async () => {
  const job = await patterned("none", 8, [], null);
  await on(job, "#ranks", async (page) => {
    assert.equal(await page.locator(".biclusters").count(), 0);
    await page.keyboard.press("7");
    await page.waitForSelector("#view .facts");
    assert.equal(await page.locator(".population").count(), 0);
  });
});

test("sampled ranks are the summary's", async () => {
  const summary = invented({ ranks: 16, contexts: 40 });
  summary.population = {
    strata: [
      { ranks: "0-11", sampled: "3,7-8,10", variance: 0.25 },
      { ranks: "12-15", sampled: "12,15", variance: 0 },
    ],
    confidence: 0.95, error: 0.03, seed: 2271560481, achieved_error: 0.021,
    metrics: [], windows: [],
  };
  await on(await made(space.directory, "sampled", summary), "#run", async (page) => {
    const panel = page.locator(".population");
    assert.match(plain(await panel.locator("p").first().textContent()),
      /^6 of 16 ranks keep their samples: 4 of ranks 0-11; 2 of ranks 12-15 .* within 2\.1 % of/);
    assert.deepEqual(await panel.locator("dd").allTextContents(),
      [percent(0.95), percent(0.03), percent(0.021), "2271560481"]);
    const rows = await panel.locator("tbody tr").evaluateAll((rows) => rows.map((row) => {
      return [...row.cells].map(({ textContent }) => textContent);
    }));
    assert.deepEqual(rows.map((row) => row.map(plain)), [
      ["ranks 0-11", "12", "ranks 3,7-8,10", "4", plain(seconds(0.5))],
      ["ranks 12-15", "4", "ranks 12,15", "2", plain(seconds(0))],
    ]);
  });
});
