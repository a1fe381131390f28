// Threads in the timeline: rows below their rank that the pointer, keys and the address expand.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, generated, held, workspace } from "./pages.mjs";

/** Width of the labels beside the cells. */
const LEFT = 128;
/** Space below the threads of a rank. */
const GAP = 3;
const RANKS = 8;

let space, context;
const jobs = {};

before(async () => {
  space = await workspace();
  context = await browser(space.directory);
  const size = { ranks: RANKS, contexts: 400 };
  jobs.threaded = await generated(space.directory, "threaded",
    { ...size, cells: { rows: RANKS, columns: 128, threadColumns: 32 } });
  jobs.plain = await generated(space.directory, "plain",
    { ...size, cells: { rows: RANKS, columns: 128 } });
});

after(async () => {
  await context?.close();
  await space?.close();
});

/** Opens the timeline with a part of an address, once its canvas is there. */
const on = (job, parts, act) => held(context, job, `#timeline?order=rank${parts}`, async (page, summary) => {
  await page.waitForSelector("canvas.timeline");
  await act(page, summary);
});

const threadsOf = (page) => new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("threads");
const button = (page, rank) => page.getByRole("button", { name: `Threads of rank ${rank}`, exact: true });
const heightOf = async (page) => (await page.locator("canvas.timeline").boundingBox()).height;

/** What stands under the canvas when the pointer is at a part of the run, beside a rank's button. */
async function under(page, rank, below, part) {
  const canvas = page.locator("canvas.timeline");
  await canvas.scrollIntoViewIfNeeded();
  const [box, at] = [await canvas.boundingBox(), await button(page, rank).boundingBox()];
  await page.mouse.move(box.x + LEFT + (box.width - LEFT) * part, at.y + at.height / 2 + below);
  return (await page.textContent(".under")).replaceAll("\u00a0", " ");
}

/** The colour of a cell on the canvas: that of most pixels, for rulers cross it. */
async function pixel(page, rank, below, part) {
  const [box, at] = [
    await page.locator("canvas.timeline").boundingBox(), await button(page, rank).boundingBox(),
  ];
  return page.$eval("canvas.timeline", (canvas, [x, y]) => {
    const [scale, wide] = [window.devicePixelRatio, 9];
    const copy = new OffscreenCanvas(wide, 1).getContext("2d");
    copy.drawImage(canvas, x * scale, y * scale, wide, 1, 0, 0, wide, 1);
    const { data } = copy.getImageData(0, 0, wide, 1);
    const all = Array.from({ length: wide }, (_, at) => data.slice(4 * at, 4 * at + 3).join());
    const times = (one) => all.filter((other) => other === one).length;
    return all.reduce((most, one) => (times(one) > times(most) ? one : most));
  }, [LEFT + (box.width - LEFT) * part, at.y + at.height / 2 - box.y + below]);
}

/** Distance from the middle of a rank's row to the middle of its first and second thread's row. */
async function below(page) {
  const [first, second] = [await button(page, 0).boundingBox(), await button(page, 1).boundingBox()];
  const [whole, row] = [second.y - first.y - GAP, (500 - 18 - 42) / RANKS];
  const thread = (whole - row) / 2;
  return [(row + thread) / 2, (row + 3 * thread) / 2];
}

test("a triangle shows the threads of its rank, by pointer and by key", async () => {
  await on(jobs.threaded, "", async (page) => {
    const folded = await heightOf(page);
    assert.equal(await page.locator(".disclosure").count(), RANKS);
    await button(page, 2).click();
    assert.equal(threadsOf(page), "2");
    assert.equal(await button(page, 2).getAttribute("aria-expanded"), "true");
    assert.equal(await button(page, 3).getAttribute("aria-expanded"), "false");
    const one = await heightOf(page);
    assert.ok(one > folded, `${one} ${folded}`);
    await button(page, 5).focus();
    await page.keyboard.press("Enter");
    assert.equal(threadsOf(page), "2,5");
    assert.ok(Math.abs(await heightOf(page) - folded - 2 * (one - folded)) < 1);
    assert.equal(await page.evaluate(() => document.activeElement.title), "Threads of rank 5");
    await page.keyboard.press("Space");
    await button(page, 2).click();
    assert.equal(threadsOf(page), null);
    assert.equal(await heightOf(page), folded);
  });
});

test("a cell of a thread is named with its rank, and has the colour of its waiting", async () => {
  for (const theme of ["light", "dark"]) {
    await on(jobs.threaded, "&threads=all&colour=wait", async (page) => {
      await page.emulateMedia({ colorScheme: theme });
      await page.waitForTimeout(100);
      const [slowest, fastest] = await below(page);
      const shown = [];
      for (const [at, part, name, wait] of [
        [slowest, 0.25, "slowest thread 3", 0], [slowest, 0.75, "slowest thread 3", 0],
        [fastest, 0.25, "fastest thread 1", 0], [fastest, 0.75, "fastest thread 1", 100],
      ]) {
        const said = await under(page, 4, at, part);
        assert.match(said, new RegExp(`^rank 4, ${name}, .* waiting ${wait} %`), theme);
        shown.push(await pixel(page, 4, at, part));
      }
      assert.match(await under(page, 4, 0, 0.5), /^rank 4, \d/);
      assert.equal(new Set(shown.slice(0, 3)).size, 1, theme);
      assert.notEqual(shown[3], shown[0], theme);
    });
  }
});

test("a button shows the threads of all ranks, and the address keeps what is shown", async () => {
  await on(jobs.threaded, "", async (page) => {
    const all = page.getByRole("button", { name: "Threads", exact: true });
    assert.equal(await all.getAttribute("aria-pressed"), "false");
    await all.click();
    assert.equal(threadsOf(page), "all");
    assert.equal(await all.getAttribute("aria-pressed"), "true");
    assert.equal(await page.locator('.disclosure[aria-expanded="true"]').count(), RANKS);
    await button(page, 3).click();
    assert.equal(threadsOf(page), "0-2,4-7");
    await button(page, 3).click();
    assert.equal(threadsOf(page), "all");
    await all.focus();
    await page.keyboard.press("Enter");
    assert.equal(threadsOf(page), null);
    assert.match(await page.textContent(".left-out"), /no room for 7\sthreads with less work/);
  });
  for (const order of ["cluster", "node", "rank"]) {
    await on(jobs.threaded, `&order=${order}&threads=1,6-7,99,x`, async (page) => {
      for (let rank = 0; rank < RANKS; rank += 1) {
        const isOpen = await button(page, rank).getAttribute("aria-expanded");
        assert.equal(isOpen, String([1, 6, 7].includes(rank)), `${order}, rank ${rank}`);
      }
    });
  }
});

test("a call path has one colour and one place in the legend on ranks and threads", async () => {
  await on(jobs.threaded, "", async (page) => {
    const legend = () => page.$$eval(".legend > span", (all) => all.map((entry) => ({
      name: entry.textContent.replace(/ \([^()]*\)$/, ""),
      part: Number(/([\d.]+)\s%\)$/.exec(entry.textContent)[1]),
      colour: entry.querySelector(".swatch").style.background,
    })));
    const folded = await legend();
    await page.getByRole("button", { name: "Threads", exact: true }).click();
    const all = await legend();
    assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
    // Of three equal rows, two are of threads, which spend most of their time in one path.
    const [{ name, part, colour }] = all;
    const before = folded.find((entry) => entry.name === name);
    assert.equal(before?.colour ?? colour, colour);
    assert.ok(Math.abs(part - (50 + (before?.part ?? 0) / 3)) < 2, `${part} ${before?.part}`);
  });
});

test("threads are on paper as they are shown, without their buttons", async () => {
  await on(jobs.threaded, "&threads=all", async (page) => {
    const shown = await heightOf(page);
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.locator(".disclosure").first().isVisible(), false);
    assert.equal(await heightOf(page), shown);
  });
});

test("a timeline without threads has no buttons for them", async () => {
  await on(jobs.plain, "&threads=all", async (page) => {
    assert.equal(await page.locator(".disclosure, .all-threads, .left-out").count(), 0);
    assert.equal(await heightOf(page), 500);
  });
});
