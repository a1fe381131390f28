/** Loops: how long their iterations took, and which behave alike. */

import { type Child, h, table } from "./dom";
import { count, counted, each, endOf, holds, percent, ranks, seconds } from "./format";
import type { Job } from "./job";
import { type Series, chart, palette } from "./series_chart";
import type { Loop } from "./summary";

/** Iterations from which on a loop is likely to be the one that the run is about. */
const MANY_ITERATIONS = 10;
/** Clusters with a colour of their own. */
const MAX_COLOURED = 6;

export function showLoops(job: Job, place: HTMLElement): void {
  const { loops } = job.summary;
  if (loops.length === 0) {
    place.replaceChildren(h("p", { class: "panel missing" },
      "The run has no loop whose iterations were told apart: they last at least ten sampling " +
      "periods each."));
    return;
  }
  const chosen = Math.min(job.address.loop ?? hottest(loops), loops.length - 1);
  place.replaceChildren(
    h("section", { class: "panel" }, h("h2", {}, "Iterations"), one(job, loops[chosen]!)),
    h("section", { class: "panel" }, list(job, chosen)),
  );
}

/** The loop with iterations that takes most of the run. */
function hottest(loops: Loop[]): number {
  let best = 0;
  loops.forEach((loop, index) => {
    const first = loops[best]!;
    const has = Number(loop.durations_s.length >= MANY_ITERATIONS);
    const had = Number(first.durations_s.length >= MANY_ITERATIONS);
    if (has > had || (has === had && loop.fraction > first.fraction)) best = index;
  });
  return best;
}

/** The number of the iteration that stands at a place of the thinned durations. */
function iteration(loop: Loop, index: number): number {
  const all = Math.max(loop.iterations.accepted, loop.durations_s.length);
  return Math.floor((index * all) / loop.durations_s.length);
}

function one(job: Job, loop: Loop): Child[] {
  const { durations_s, iterations, clusters } = loop;
  const bound = iterations.exact ? "" : "at least ";
  const parts: Child[] = [
    h("p", {}, `${endOf(loop.path)}: ${bound}${counted(iterations.accepted, "iteration")}` +
      (loop.executions > 1 ? ` in each of ${count(loop.executions)} executions` : "") +
      `, ${percent(loop.fraction)} of the run, on ${ranks(loop.ranks, job.summary.run.ranks)}. `,
      h("a", { href: job.link({ view: "contexts", node: loop.node }) }, "Its call path")),
  ];
  if (durations_s.length < 2) {
    parts.push(h("p", { class: "missing" }, "How long single iterations took is not known."));
  } else {
    parts.push(durations(loop), worst(loop));
  }
  if (clusters.length > 0) {
    parts.push(table("Iterations that behave alike", ["Iterations", "Mean duration"],
      clusters.slice(0, 50).map((cluster) => [shortened(cluster.iterations), seconds(cluster.mean_s)])));
  }
  return parts;
}

function shortened(list: string): string {
  const MOST = 80;
  return list.length <= MOST ? list : `${list.slice(0, list.lastIndexOf(",", MOST))},...`;
}

/** Durations over the iterations, coloured by cluster. */
function durations(loop: Loop): HTMLElement {
  const { durations_s, clusters } = loop;
  const clusterOf = new Int32Array(durations_s.length).fill(-1);
  const numbers = Array.from(durations_s, (_, index) => iteration(loop, index));
  const small = new Map<number, number>();
  clusters.slice(0, MAX_COLOURED).forEach((cluster, at) => {
    each(cluster.iterations, 100_000, (number) => small.set(number, at));
  });
  numbers.forEach((number, index) => (clusterOf[index] = small.get(number) ?? -1));
  const kinds = [...new Set(clusterOf)].sort((a, b) => a - b);
  const series: Series[] = kinds.map((kind) => {
    const members = numbers.map((_, index) => index).filter((index) => clusterOf[index] === kind);
    const name = kind < 0 ? "other iterations"
      : `cluster ${kind + 1} (${seconds(clusters[kind]!.mean_s)} on average)`;
    return {
      name, colour: palette(kind < 0 ? 5 : kind), joined: kinds.length === 1,
      x: members.map((index) => numbers[index]!), y: members.map((index) => durations_s[index]!),
    };
  });
  const mean = durations_s.reduce((sum, duration) => sum + duration, 0) / durations_s.length;
  return chart({
    label: "Duration of the iterations",
    height: 240,
    xRange: [0, Math.max(numbers[numbers.length - 1] ?? 1, 1)],
    yMax: Math.max(...durations_s) * 1.08,
    xText: (x) => count(Math.round(x)),
    yText: seconds,
    xTitle: numbers.length < loop.iterations.accepted
      ? "iteration (thinned evenly)"
      : "iteration",
    series,
    levels: [{ y: mean, label: `mean ${seconds(mean)}` }],
    tip: (at, index) => {
      return `iteration ${series[at]!.x[index]}: ${seconds(series[at]!.y[index])}, ` +
        series[at]!.name;
    },
  });
}

/** The longest iterations in words. */
function worst(loop: Loop): HTMLElement {
  const order = loop.durations_s.map((duration, index) => ({ duration, index }));
  order.sort((a, b) => b.duration - a.duration);
  const named = order.slice(0, 5).map(({ duration, index }) => {
    return `${count(iteration(loop, index))} (${seconds(duration)})`;
  });
  const thinned = loop.durations_s.length < loop.iterations.accepted ? " among those shown" : "";
  return h("p", { class: "worst" }, `The longest iterations${thinned}: ${named.join(", ")}; ` +
    `the shortest takes ${seconds(order[order.length - 1]!.duration)}.`);
}

function list(job: Job, chosen: number): HTMLElement {
  const { loops } = job.summary;
  const rows = loops.map((loop, index) => [
    h("a", { href: job.link({ view: "loops", loop: index }),
      "aria-current": index === chosen ? "true" : null }, endOf(loop.path)),
    (loop.iterations.exact ? "" : "\u2265\u00a0") + count(loop.iterations.accepted),
    count(loop.executions), seconds(loop.mean_duration_s), percent(loop.fraction),
    String(loop.clusters.length), ranks(loop.ranks, job.summary.run.ranks),
  ]);
  return table("All loops, outermost first",
    ["Loop", "Iterations", "Executions", "Mean execution", "Of the run", "Clusters", "Ranks"], rows);
}

/** Whether a cluster of iterations holds one. */
export function isIn(cluster: { iterations: string }, number: number): boolean {
  return holds(cluster.iterations, number);
}
