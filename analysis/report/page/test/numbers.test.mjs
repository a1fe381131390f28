// Numbers and sentences of the page that need no browser.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { summary as invented } from "./generated.mjs";

const sources = join(dirname(fileURLToPath(import.meta.url)), "../src");

/** A module of the page's sources. */
async function source(file) {
  const { outputFiles } = await esbuild.build({
    entryPoints: [join(sources, file)], bundle: true, write: false, format: "esm",
  });
  const text = Buffer.from(outputFiles[0].contents).toString("base64");
  return import(`data:text/javascript;base64,${text}`);
}

const { entries, shownFrame, valueOf } = await source("entries.ts");
const { frameName } = await source("format.ts");
const { metric } = await source("metrics.ts");
const { doubtsOf, partners } = await source("verdict_view.ts");

/** A function that calls itself, in 3 of its 5 s. */
const recursive = {
  length: 2, roots: [0], outermost: [1, 0], frames: [{ kind: "function", function: "visit" }],
  frame: () => recursive.frames[0], frameIndex: () => 0, parent: (node) => (node ? 0 : null),
  below: (node) => (node ? [] : [1]), column: () => [5, 3],
};

test("a recursive call has its time among call paths, and counts once among functions", () => {
  const value = (entry) => valueOf(recursive, metric("inclusive"), entry);
  const [outer] = entries(recursive, "tree");
  assert.deepEqual([outer, ...outer.children()].map(value), [5, 3]);
  assert.deepEqual(entries(recursive, "flat").map(value), [5]);
});

test("calls of MPI have their lines in call paths, and are one row among functions", () => {
  const call = (line) => ({
    kind: "mpi", function: "MPI_Allreduce", file: "/src/solver.c", line, module: "libmpi.so.40",
  });
  const frames = [{ kind: "function", function: "main", file: null, line: null }, call(7), call(9)];
  const twice = {
    length: 3, roots: [0], outermost: [1, 1, 1], frames, frame: (node) => frames[node],
    frameIndex: (node) => node, parent: (node) => (node ? 0 : null),
    below: (node) => (node ? [] : [1, 2]), column: () => [5, 3, 1],
  };
  const shown = (entry) => [
    frameName(shownFrame(twice, entry)), valueOf(twice, metric("inclusive"), entry),
  ];
  const [main] = entries(twice, "tree");
  assert.deepEqual(main.children().map(shown), [
    ["MPI_Allreduce at solver.c:7", 3], ["MPI_Allreduce at solver.c:9", 1],
  ]);
  for (const mode of ["flat", "callers"]) {
    assert.deepEqual(entries(twice, mode).map(shown), [["main", 5], ["MPI_Allreduce", 4]]);
  }
});

const small = () => invented({ ranks: 4, contexts: 50 });

test("truncated call paths are counted, since those of calls are among them", () => {
  const summary = small();
  Object.assign(summary.collection, { samples: 100, truncated: 492 });
  const doubts = doubtsOf(summary).join(" ");
  assert.match(doubts, /492.call paths lack their outer frames/);
  assert.doesNotMatch(doubts, /492.%/);
});

test("threads that wait for a core need not be more than the cores", () => {
  const summary = small();
  summary.losses = [{ kind: "oversubscription", seconds: 2.5 }];
  const doubts = doubtsOf(summary).join(" ");
  assert.match(doubts, /waited 2.50.s each for a core/);
  assert.doesNotMatch(doubts, /more busy threads/);
});

test("threads that do the work of the ranks and are not compared are a doubt", () => {
  const summary = small();
  const words = /losses between others are not found/;
  assert.doesNotMatch(doubtsOf(summary).join(" "), words);
  summary.efficiency.parallel = null;
  summary.run.threads = summary.run.ranks;
  assert.doesNotMatch(doubtsOf(summary).join(" "), words);
  summary.run.threads += 2;
  assert.match(doubtsOf(summary).join(" "), words);
  summary.run.mpi.abi = "none";
  assert.doesNotMatch(doubtsOf(summary).join(" "), words);
});

test("a single waiting rank does not wait for itself", () => {
  const of = (waiting_ranks) => {
    const waits_for = [{ ranks: "0", share: 0.64 }, { ranks: "1", share: 0.36 }];
    return partners({ waiting_ranks, waits_for }).map((it) => it.ranks);
  };
  assert.deepEqual([of("1"), of("0-1")], [["0"], ["0", "1"]]);
});
