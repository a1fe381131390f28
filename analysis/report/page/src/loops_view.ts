/** Loops: how long their iterations took, and which behave alike. */

import { type Child, h, table } from "./dom";
import { capital, count, counted, endOf, numbersIn, percent, ranks, seconds, size } from "./format";
import {
  executionsPerRank, firstIterations, isNumbered, iterationsOf, numbersFrom, stride, wanted,
} from "./iterations";
import type { Job } from "./job";
import { type Series, chart, palette } from "./series_chart";
import type { Loop } from "./summary";

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
  const chosen = Math.min(job.address.loop ?? wanted(loops, job.loss()), loops.length - 1);
  place.replaceChildren(
    h("section", { class: "panel" }, h("h2", {}, "Iterations"), one(job, chosen)),
    h("section", { class: "panel" }, list(job, chosen)),
  );
}

function one(job: Job, at: number): Child[] {
  const loop = job.summary.loops[at]!;
  const { durations_s, iterations, clusters, mean_duration_s } = loop;
  const number = iterationsOf(loop);
  const [least, most] = iterations.exact ? ["", ""] : ["at least ", "at most "];
  // Iterations are counted on the rank with the longest executions.
  const each = (loop.longest_s ?? mean_duration_s) / number;
  const parts: Child[] = [
    h("p", {}, `${capital(endOf(loop.path))}: ${least}${counted(number, "iteration")}` +
      executed(loop) + `, ${most}${seconds(each)} each on average` +
      `, ${percent(loop.fraction)} of the run, on ${ranks(loop.ranks, job.summary.run.ranks)}.`),
    h("p", { class: "links" },
      h("a", { href: job.link({ view: "contexts", node: loop.node }) }, "Its call path"),
      h("a", { href: job.link({ view: "ranks", node: loop.node }) }, "Over the ranks"),
      h("a", { href: job.link({ view: "timeline", loop: at }) }, "Its iterations in the timeline")),
  ];
  if (durations_s.length < 2) {
    parts.push(h("p", { class: "missing" }, "How long single iterations took is not known."));
  } else {
    parts.push(durations(loop), worst(job, at));
  }
  if (clusters.length > 0) {
    parts.push(table("Iterations that behave alike", ["Iterations", "Mean duration"],
      clusters.slice(0, 50).map((cluster) => [members(loop, cluster), seconds(cluster.mean_s)])));
  }
  return parts;
}

/** How often the loop was entered, in words; nothing where that is once on each rank. */
function executed(loop: Loop): string {
  const each = executionsPerRank(loop);
  if (each <= 1) return "";
  const number = Number.isInteger(each) ? count(each) : `about ${each.toPrecision(3)}`;
  return ` in each of ${number} executions on a rank`;
}

/** A list that is longer than the cluster has iterations of other clusters, too. */
function isExact({ iterations, weight }: Loop["clusters"][number]): boolean {
  return weight === null || size(iterations) <= weight;
}

/** The iterations of a cluster: their numbers where these are known, else how many. */
function members(loop: Loop, cluster: Loop["clusters"][number]): string {
  const { iterations, weight } = cluster;
  if (isNumbered(loop) && isExact(cluster)) return shortened(iterations);
  const listed = size(iterations);
  return counted(Math.min(listed, weight ?? listed), "iteration");
}

function shortened(list: string): string {
  const MOST = 80;
  return list.length <= MOST ? list : `${list.slice(0, list.lastIndexOf(",", MOST))},...`;
}

/** Durations over the iterations, coloured by cluster. */
function durations(loop: Loop): HTMLElement {
  const { durations_s } = loop;
  // A mean of several iterations belongs to no cluster.
  const clusters = stride(loop) > 1 ? [] : loop.clusters;
  const clusterOf = new Int32Array(durations_s.length).fill(-1);
  const numbers = firstIterations(loop);
  const small = new Map<number, number>();
  clusters.slice(0, MAX_COLOURED).forEach((cluster, at) => {
    if (!isExact(cluster)) return;
    for (const number of numbersIn(cluster.iterations, 100_000)) small.set(number, at);
  });
  const named = isNumbered(loop);
  const position = (index: number): number => (named ? numbers[index]! : index * stride(loop));
  numbers.forEach((number, index) => (clusterOf[index] = small.get(number) ?? -1));
  const kinds = [...new Set(clusterOf)].sort((a, b) => a - b);
  const series: Series[] = kinds.map((kind) => {
    const members = numbers.map((_, index) => index).filter((index) => clusterOf[index] === kind);
    const name = kind < 0 ? (stride(loop) > 1 ? "mean durations" : "other iterations")
      : `cluster ${kind + 1} (${seconds(clusters[kind]!.mean_s)} on average)`;
    return {
      name, colour: palette(kind < 0 ? 5 : kind), joined: kinds.length === 1,
      x: members.map(position), y: members.map((index) => durations_s[index]!),
    };
  });
  const mean = durations_s.reduce((sum, duration) => sum + duration, 0) / durations_s.length;
  return chart({
    label: "Duration of the iterations",
    height: 240,
    xRange: [0, Math.max(position(numbers.length - 1), 1)],
    yMax: Math.max(...durations_s) * 1.08,
    xText: count,
    xWhole: true,
    yText: seconds,
    xTitle: (named ? "iteration" : "iterations that samples tell apart, in order") +
      (stride(loop) > 1 ? ` (means of ${stride(loop)})` : ""),
    series,
    levels: [{ y: mean, label: `mean of these ${seconds(mean)}` }],
    tip: (at, index) => {
      const who = !named ? (stride(loop) > 1 ? "iterations, on average" : "one iteration")
        : words(numbersFrom(loop, series[at]!.x[index]!));
      return `${who}: ${seconds(series[at]!.y[index])}, ${series[at]!.name}`;
    },
  });
}

/** Iterations as the subject of a sentence. */
function words(numbers: string): string {
  return numbers.includes("-") ? `iterations ${numbers}, on average` : `iteration ${numbers}`;
}

/** The longest iterations, each with a link to its time. */
function worst(job: Job, at: number): HTMLElement {
  const loop = job.summary.loops[at]!;
  const numbers = firstIterations(loop);
  const order = loop.durations_s.map((duration, index) => ({ duration, first: numbers[index]! }));
  order.sort((a, b) => b.duration - a.duration);
  const named = isNumbered(loop);
  const longest = order.slice(0, 5).map(({ duration, first }, place) => [
    place > 0 && ", ",
    h("a", {
      href: job.link({ view: "timeline", loop: at, iteration: first }),
      title: "When it was",
    }, named ? numbersFrom(loop, first) : seconds(duration)),
    named && ` (${seconds(duration)})`,
  ]);
  const mean = stride(loop) > 1 ? ", each a mean" : "";
  return h("p", { class: "worst" }, `The longest iterations${mean}: `, longest,
    `; the shortest takes ${seconds(order[order.length - 1]!.duration)}.`);
}

function list(job: Job, chosen: number): HTMLElement {
  const { loops } = job.summary;
  const rows = loops.map((loop, index) => [
    h("a", { href: job.link({ view: "loops", loop: index }),
      "aria-current": index === chosen ? "true" : null }, endOf(loop.path)),
    (loop.iterations.exact ? "" : "\u2265\u00a0") + count(iterationsOf(loop)),
    count(loop.executions), seconds(loop.mean_duration_s), percent(loop.fraction),
    String(loop.clusters.length), ranks(loop.ranks, job.summary.run.ranks),
  ]);
  return table("All loops, outermost first",
    ["Loop", "Iterations", "Executions, all ranks", "Mean execution", "Of the run", "Clusters", "Ranks"], rows);
}
