/** The run and its measurement in full: nodes, clocks, threads, notes, settings. */

import { type Child, facts, fill, h, table } from "./dom";
import { bytes, count, numbersIn, percent, seconds, words } from "./format";
import type { Job } from "./job";
import { populationPanel } from "./population_view";
import { chart, extent, palette } from "./series_chart";
import type { Clocks, Run, Summary } from "./summary";

export async function showRun(job: Job, place: HTMLElement): Promise<void> {
  const { summary } = job;
  const { population } = await job.sentences();
  if (job.address.view !== "run") return;
  fill(place,
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "Run"), run(summary)),
      h("section", { class: "panel" }, h("h2", {}, "Measurement"), measurement(summary)),
    ),
    populationPanel(summary, population),
    h("section", { class: "panel" }, h("h2", {}, "Threads"), threads(summary)),
    h("section", { class: "panel" }, h("h2", {}, "Clocks"), clocks(summary)),
    h("section", { class: "panel" }, h("h2", {}, "Notes"), notes(summary)),
    h("section", { class: "panel" }, h("h2", {}, "Settings"), settings(summary)),
  );
}

function run({ run }: Summary): HTMLElement {
  const all = run.world_ranks ?? 0;
  const of = all > run.ranks ? ` of ${count(all)}` : "";
  return facts([
    ["Executable", run.executable],
    ["Arguments", run.arguments.join(" ") || "none"],
    ["Job", run.job ?? "without a launcher"],
    ["Begin", run.started],
    ["Run time", seconds(run.elapsed_s)],
    ["Ranks", count(run.ranks) + of],
    ["Threads", count(run.threads)],
    ["MPI", run.mpi.library ?? "none"],
    ["Its binary interface", run.mpi.abi],
    ["End", run.complete ? run.ended : `${run.ended}, incomplete`],
    ["Incomplete because", run.incomplete ?? "\u2013"],
  ]);
}

function measurement({ run, collection, timeline, per_rank }: Summary): HTMLElement {
  const { marks } = collection;
  return facts([
    ["Samples", count(collection.samples)],
    ["Records lost", count(collection.lost)],
    ["Samples without outer frames", count(collection.truncated)],
    ["Clock of the samples", run.clock],
    ["Period asked for", seconds(run.period_us.asked * 1e-6)],
    ["Period reached", run.period_us.effective === null
      ? "unknown" : seconds(run.period_us.effective * 1e-6)],
    ["Return-address marks", marks.off_reason ??
      `${count(marks.planted)} planted, ${count(marks.hit)} met, ${count(marks.stale)} stale`],
    ["MPI calls", count(collection.mpi_calls)],
    ["CPU time of sampling", seconds(collection.sampling_cpu_s)],
    ["CPU time of collecting", seconds(collection.collector_cpu_s || null)],
    ["Analysis at the end", seconds(collection.finalize_s)],
    ["Memory per rank", bytes(collection.memory_bytes)],
    ["Records", bytes(collection.record_bytes)],
    ["Spooled to disk", bytes(collection.spool_bytes)],
    ["Threads without samples", count(collection.unsampled_threads ?? 0)],
    ["Functions without structure", count(collection.late_functions ?? 0)],
    ["Times of single ranks", per_rank.file ?? "none"],
    ["Timeline", timeline.file ?? "none"],
  ]);
}

function threads(summary: Summary): Child {
  const clusters = summary.thread_clusters ?? [];
  if (clusters.length === 0) {
    return h("p", {}, "No threads were measured beside those that communicate.");
  }
  return table("Threads that behave alike",
    ["Begins in", "Threads", "On ranks", "Mean life", "Mean computation", "Idle or waiting",
      "Of its life", "Distance"],
    clusters.map((cluster) => [
      cluster.routine ?? "unknown", count(cluster.size), cluster.ranks, seconds(cluster.mean_s),
      seconds(cluster.work_s), seconds(Math.max(cluster.mean_s - cluster.work_s, 0)),
      cluster.mean_s > 0 ? percent(Math.max(1 - cluster.work_s / cluster.mean_s, 0)) : "unknown",
      cluster.distance === null ? "\u2013" : percent(cluster.distance),
    ]));
}

function clocks({ clocks, run }: Summary): Child[] {
  const { offsets_us, drift_ppm, residual_us, method, reference } = clocks;
  const said = h("p", {}, method === "none" || offsets_us.length === 0
    ? "How the ranks' clocks stand to each other is not known."
    : `Aligned by ${words(method)} to rank ${reference}; ` +
      `${residual_us === null ? "an unknown time" : seconds(residual_us * 1e-6)} is left unexplained.`);
  if (offsets_us.length < 2) return [said];
  return [said, clockChart(clocks, run.nodes), h("p", { class: "aside" },
    `Drift: ${span(drift_ppm)} parts per million.`)];
}

function span(values: number[]): string {
  const [least, most] = extent(values);
  return values.length === 0 ? "unknown" : `${least.toPrecision(3)} to ${most.toPrecision(3)}`;
}

function clockChart({ offsets_us }: Clocks, nodes: Run["nodes"]): HTMLElement {
  const least = Math.min(0, extent(offsets_us)[0]);
  const heights = offsets_us.map((offset) => (offset - least) * 1e-6);
  const numbers = nodes.flatMap(({ ranks }) => numbersIn(ranks, offsets_us.length));
  numbers.sort((one, other) => one - other);
  const [first, last] = [numbers[0] ?? 0, numbers[numbers.length - 1] ?? 0];
  return chart({
    label: "Offset of the ranks' clocks",
    height: 160,
    xRange: [first, Math.max(last, first + 1)],
    yMax: extent(heights)[1] * 1.08 || 1e-6,
    xText: count,
    xWhole: true,
    yText: (y) => seconds(y + least * 1e-6),
    xTitle: "rank",
    series: [{ name: "offset", colour: palette(0), x: numbers, y: heights, joined: false }],
    tip: (_, index) => `rank ${numbers[index]}: ${seconds((offsets_us[index] ?? 0) * 1e-6)}`,
  });
}

function notes({ notes }: Summary): Child {
  if (!notes || notes.length === 0) return h("p", {}, "There is nothing to note.");
  return h("ul", {}, notes.map((note) => h("li", {}, note)));
}

function settings({ run }: Summary): Child {
  const pairs = Object.entries(run.settings).sort(([a], [b]) => a.localeCompare(b));
  return table("Settings in effect", ["Variable", "Value"], pairs);
}
