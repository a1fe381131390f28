/** Parallel regions of OpenMP: what their threads do, and how it is spread over the threads. */

import type { Contexts } from "./contexts";
import { type Child, h, table } from "./dom";
import { count, counted, frameName, percent, place, ranks as rankWords, seconds } from "./format";
import type { Job } from "./job";
import { type Series, chart, palette } from "./series_chart";
import type { Region, Task, ThreadShare } from "./summary";

/** Maximum number of regions, and of kinds of tasks, in the tables. */
const MAX_LISTED = 50;

/** What a thread does in a region, each with its name. */
const PARTS: [keyof Omit<ThreadShare, "number">, string][] = [
  ["work_s", "work"], ["barrier_s", "waiting for threads and tasks"],
  ["lock_s", "waiting for locks"], ["mpi_s", "in MPI (a part of work)"],
];

/** The panel of the regions; nothing without OpenMP. */
export function regionsPanel(job: Job, contexts: Contexts): Child {
  const { openmp } = job.summary;
  const { regions, tasks, runtime, unmeasured } = openmp;
  if (regions.length === 0 && tasks.length === 0 && unmeasured === 0) return null;
  const chosen = Math.min(job.address.region ?? 0, regions.length - 1);
  return h("section", { class: "panel regions" },
    h("h2", {}, "Parallel regions"),
    h("p", { class: "aside" }, `Measured in ${runtime || "no runtime"}. Idle is thread time ` +
      "without work: waits in shares, and the time from the end of a thread's share to the end of " +
      "the region. Times are sums over ranks." +
      (unmeasured > 0 ? ` ${counted(unmeasured, "instance")} could not be measured.` : "")),
    regions.length > 0 && regionTable(job, contexts, chosen),
    regions.length > 0 && shares(job, contexts, regions[chosen]!),
    tasks.length > 0 && taskTable(job, tasks));
}

function regionTable(job: Job, contexts: Contexts, chosen: number): Child {
  const { regions } = job.summary.openmp;
  const part = (time: number, { thread_s }: Region) => {
    return thread_s > 0 ? `${seconds(time)} (${percent(time / thread_s)})` : seconds(time);
  };
  return [
    table("Regions, the most idle first",
      ["Region", "Ranks", "Threads", "Instances", "Mean duration", "Median", "Idle", "Uneven", "Scheduling",
        "Barriers", "Locks", "MPI in it"],
      regions.slice(0, MAX_LISTED).map((region, index) => [
        h("a", { href: job.link({ view: "ranks", region: index }),
          "aria-current": index === chosen ? "true" : null }, name(region, contexts)),
        rankWords(region.ranks, job.summary.run.ranks), count(region.threads),
        count(region.instances), seconds(region.elapsed_s / Math.max(region.instances, 1)),
        seconds(region.median_s),
        part(Math.max(region.thread_s - region.work_s, 0), region),
        part(region.load_balance_s, region), part(region.scheduling_s, region),
        part(region.barrier_s, region), part(region.lock_s, region), part(region.mpi_s, region),
      ])),
    regions.length > MAX_LISTED && h("p", { class: "aside" },
      `${count(regions.length - MAX_LISTED)} regions with less idle time are not listed.`),
  ];
}

/** The work and the waits of each thread number in a region. */
function shares(job: Job, contexts: Contexts, region: Region): Child {
  const { shares, node } = region;
  if (shares.length === 0) return null;
  const shown = PARTS.filter(([key]) => shares.some((share) => share[key] > 0));
  const numbers = shares.map(({ number }) => number);
  const series: Series[] = shown.map(([key, title], index) => ({
    name: title, colour: palette(index), joined: false, x: numbers,
    y: shares.map((share) => share[key]),
  }));
  const most = Math.max(...series.flatMap(({ y }) => Array.from(y)));
  const mean = shares.reduce((sum, { work_s }) => sum + work_s, 0) / shares.length;
  return [
    h("h3", {}, `Threads of ${name(region, contexts)}`),
    h("p", { class: "links" },
      h("a", { href: job.link({ view: "contexts", node }) }, "Its call path"),
      h("a", { href: job.link({ view: "ranks", node }) }, "Over the ranks")),
    chart({
      label: "Work and waits by number of the thread",
      height: 220,
      xRange: [numbers[0]! - 0.5, numbers[numbers.length - 1]! + 0.5],
      yMax: most * 1.08 || 1e-6,
      xText: count,
      xWhole: true,
      yText: seconds,
      xTitle: "number of the thread in its team",
      series,
      levels: [{ y: mean, label: `mean work ${seconds(mean)}` }],
      tip: (at, index) => {
        return `thread ${numbers[index]}: ${seconds(series[at]!.y[index])} ${series[at]!.name}`;
      },
    }),
  ];
}

function taskTable(job: Job, tasks: Task[]): Child {
  return table("Explicit tasks", ["Task", "Ranks", "Executions", "Mean", "Median", "Longest", "In all"],
    tasks.slice(0, MAX_LISTED).map((task) => [
      place(task) || task.function || "unknown", rankWords(task.ranks, job.summary.run.ranks),
      count(task.count), seconds(task.work_s / Math.max(task.count, 1)),
      seconds(task.median_s), seconds(task.longest_s), seconds(task.work_s),
    ]));
}

/** A region by its place, and the function that makes it: `solve.c:12 in solve`. */
function name(region: Region, contexts: Contexts): string {
  const path = contexts.has(region.node) ? contexts.path(region.node) : [];
  const caller = path.length > 1 ? ` in ${frameName(contexts.frame(path[path.length - 2]!))}` : "";
  return (place(region) || region.function || "region") + caller;
}
