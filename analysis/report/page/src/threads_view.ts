/** Threads of the processes: how their computation is spread, over ranks and over roles (ESPT15, 4). */

import { type Child, h, table } from "./dom";
import { count, counted, endOf, percent, ranks as rankWords, seconds } from "./format";
import type { Job } from "./job";
import { type Series, chart, palette } from "./series_chart";
import type { ProcessThreads, ThreadTimes, ThreadsOfProcess } from "./summary";

/** A point of the chart: a thread, or the mean of some. */
interface Plotted {
  rank: number;
  role: string;
  times: ThreadTimes;
}

/** Ways in which the threads of a process are aggregated, in words. */
const AGGREGATIONS: Record<string, string> = {
  sum: "added up",
  set: "added up, with statistics over them",
  key: "added up but for the communicating, the slowest and the fastest one",
  calltree: "added up in classes that visit the same call paths",
  all: "kept one by one",
};

/** The panel of the threads; nothing if no process has more than one. */
export function threadsPanel(job: Job): Child {
  const { threads, run } = job.summary;
  if (!threads || threads.roles.length < 2) return null;
  return h("section", { class: "panel threads" },
    h("h2", {}, "Threads of the processes"),
    h("p", { class: "aside" }, `The threads of each process are ${AGGREGATIONS[threads.aggregation] ??
      threads.aggregation} (PLIMSOLL_THREADS=${threads.aggregation}).`),
    scatter(threads), distinction(job, threads),
    table("Threads by their role in their process",
      ["Role", "Threads", "On", "Mean computation", "Least of a rank", "Most of a rank", "Mean life",
        "Computing"],
      threads.roles.map((role) => [
        role.role, count(role.threads), rankWords(role.ranks, run.ranks), seconds(role.work_s),
        seconds(role.min_work_s), seconds(role.max_work_s), seconds(role.time_s),
        percent(role.work_s / role.time_s),
      ])));
}

/** The computation of each thread, or of each group of threads, over the ranks. */
function scatter({ processes, unlisted }: ProcessThreads): Child[] {
  const points = processes.flatMap(plotted);
  if (points.length === 0) return [];
  const roles = [...new Set(points.map(({ role }) => role))];
  const members = roles.map((role) => points.filter((point) => point.role === role));
  const series: Series[] = members.map((of, index) => ({
    name: roles[index]!, colour: palette(index), joined: false,
    x: of.map(({ rank }) => rank), y: of.map(({ times }) => times.work_s),
  }));
  const ranks = processes.map(({ rank }) => rank);
  const [first, last] = [Math.min(...ranks), Math.max(...ranks)];
  return [
    chart({
      label: "Computation of the threads of each rank",
      height: 260,
      xRange: [first - 0.5, last + 0.5],
      yMax: Math.max(...points.map(({ times }) => times.work_s)) * 1.08 || 1e-6,
      xText: count,
      xWhole: true,
      yText: seconds,
      xTitle: "rank",
      series,
      tip: (at, index) => said(members[at]![index]!),
    }),
    unlisted > 0 && h("p", { class: "aside" }, "Left out: " +
      counted(unlisted, "process", "processes") + " with less difference between the slowest and " +
      "the fastest thread."),
  ];
}

/** The threads of a process, each with its role. */
function plotted({ rank, key, classes }: ThreadsOfProcess): Plotted[] {
  const found: Plotted[] = [];
  const add = (role: string, times: ThreadTimes | null | undefined) => {
    if (times) found.push({ rank, role, times });
  };
  add("initial", key?.initial);
  add("slowest", key?.slowest);
  add("fastest", key?.fastest);
  add("rest, on average", key?.rest);
  const areSingle = classes?.every(({ threads }) => threads === 1);
  classes?.forEach((times, index) => add(areSingle ? "threads" : `class ${index + 1}`, times));
  return found;
}

function said({ rank, role, times }: Plotted): string {
  const { number, threads, work_s, time_s } = times;
  const who = threads > 1 ? `${counted(threads, "thread")}, on average`
    : number === null ? "a thread" : `thread ${number}`;
  return `rank ${rank}, ${who} (${role}): ${seconds(work_s)} of computation in ${seconds(time_s)}`;
}

/** Where the slowest threads take longer than the fastest. */
function distinction(job: Job, { distinction }: ProcessThreads): Child {
  if (!distinction) return null;
  const { node, path, slowest_s, fastest_s } = distinction;
  return h("p", {}, "The slowest threads compute longer in ",
    h("a", { href: job.link({ view: "contexts", node }) }, endOf(path)),
    `: ${seconds(slowest_s)}, and the fastest ${seconds(fastest_s)} (means over the ranks).`);
}
