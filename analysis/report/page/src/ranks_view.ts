/** Ranks: a context's time over the ranks (SC10, Figure 6), clusters, nodes, and who talks to whom. */

import { biclustersPanel } from "./biclusters_view";
import { type RankTimes, readRankFile } from "./blocks";
import { leastTime } from "./context_details";
import type { Contexts } from "./contexts";
import { type Child, fill, h, table } from "./dom";
import {
  count, counted, frameName, lossName, numbersIn, percent, ranks as rankWords, seconds, size,
} from "./format";
import type { Job } from "./job";
import { matrixPanel } from "./matrix";
import { type RankMetric, RANK_METRICS, rankMetric, rankValues } from "./rank_metrics";
import { regionsPanel } from "./regions_view";
import { type Rule, type Series, chart, extent, palette } from "./series_chart";
import { threadsPanel } from "./threads_view";

/** Maximum number of vertical rules: more would hide the points. */
const MAX_RULES = 64;

export async function showRanks(job: Job, place: HTMLElement): Promise<void> {
  const [contexts, times, sentences] =
    await Promise.all([job.contexts(), job.rankTimes(), job.sentences()]);
  if (job.address.view !== "ranks") return;
  fill(place,
    h("section", { class: "panel" }, h("h2", {}, "One context over the ranks"),
      scatter(job, contexts, times)),
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "Ranks that behave alike"), clusters(job)),
      h("section", { class: "panel" }, h("h2", {}, "Nodes"), nodes(job)),
    ),
    threadsPanel(job),
    regionsPanel(job, contexts),
    biclustersPanel(job, contexts, times, sentences.biclusters),
    h("section", { class: "panel" }, h("h2", {}, "Who communicates with whom"), matrixPanel(job)),
  );
}

/** The contexts that are compared: the chosen one, or symptom and causes of the loss. */
function compared(job: Job, contexts: Contexts): number[] {
  const loss = job.loss() ?? job.summary.losses[0];
  const chosen = job.address.node;
  const nodes = new Set<number>();
  if (chosen !== undefined && contexts.has(chosen)) nodes.add(chosen);
  const isOfLoss = loss && (chosen === undefined || loss.symptom.node === chosen ||
    loss.causes.some((cause) => cause.node === chosen));
  if (isOfLoss) {
    for (const cause of loss.causes.slice(0, 2)) nodes.add(cause.node);
    nodes.add(loss.symptom.node);
  }
  if (nodes.size === 0) {
    const hot = contexts.hotPath(null, "inclusive.mean_s");
    if (hot !== null) nodes.add(hot);
  }
  return [...nodes];
}

function scatter(job: Job, contexts: Contexts, times: RankTimes | null): Child[] {
  const wanted = compared(job, contexts);
  const metric = rankMetric(job.address.quantity);
  const of = job.summary.run.ranks;
  const parts: Child[] = [choices(job, contexts, wanted, metric, times)];
  const found = !times ? [] : wanted.flatMap((node) => {
    const values = rankValues(contexts, times, metric, node, of);
    return values ? [{ node, ...values }] : [];
  });
  if (!times || found.length === 0) {
    const reason = times
      ? `The page holds the values of ${counted(times.nodes.length, "context")} of ` +
        `${count(times.of)} only, not these.`
      : `The times of single ranks are not in this page. ${job.missing.ranks ?? ""}`;
    parts.push(h("p", { class: "missing" }, reason), chooser(job));
    parts.push(bounds(contexts, wanted, of));
    return parts;
  }
  const numbers = numbersIn(times.ranks, times.count);
  const series: Series[] = found.map(({ node, values }, index) => ({
    name: `${frameName(contexts.frame(node))} (${contexts.labelWords(node)})`,
    colour: palette(index),
    x: numbers,
    y: values,
    joined: false,
  }));
  const yMax = Math.max(0, ...series.map(({ y }) => extent(y)[1]));
  const { mean } = found[0]!;
  parts.push(chart({
    label: `${metric.title} of each rank`,
    height: 300,
    xRange: [numbers[0] ?? 0, Math.max(numbers[numbers.length - 1] ?? 1, 1)],
    yMax: yMax * 1.08,
    xText: count,
    xWhole: true,
    yText: metric.text,
    xTitle: "rank",
    series,
    rules: hostRules(job),
    levels: mean === null ? [] : [{ y: mean, label: `mean ${metric.text(mean)}` }],
    tip: (at, index) => {
      return `rank ${numbers[index]}: ${metric.text(series[at]!.y[index])} in ${series[at]!.name}`;
    },
    choose: (at) => job.go({ node: found[at]!.node }),
  }), h("p", { class: "aside" }, `${metric.help}.` + (found.some(({ isBound }) => isBound)
    ? " The values are lower bounds." : "")), extremes(series, numbers,
    found.map(({ mean }) => mean), metric));
  if (times.nodes.length < times.of) parts.push(chooser(job));
  return parts;
}

/** Which context and which quantity. */
function choices(
  job: Job,
  contexts: Contexts,
  wanted: number[],
  metric: RankMetric,
  times: RankTimes | null,
): HTMLElement {
  const select = h("select", { "aria-label": "Loss", onchange: (event) => {
    const loss = Number((event.target as HTMLSelectElement).value);
    const first = job.summary.losses[loss];
    job.go({ loss, node: first?.causes[0]?.node ?? first?.symptom.node ?? 0 });
  } }, job.summary.losses.map((loss, index) => h("option", {
    value: index, selected: index === (job.address.loss ?? 0),
  }, `loss ${index + 1}: ${lossName(loss)}`)));
  const shown = RANK_METRICS.filter(({ id }) => id !== "calls" || times?.quantities.includes(id));
  const buttons = shown.map(({ id, name, help }) => h("button", {
    type: "button", title: help, "aria-pressed": String(id === metric.id),
    onclick: () => job.go({ quantity: id }),
  }, name));
  const node = wanted[0];
  return h("div", { class: "controls" },
    h("span", { class: "group", role: "group", "aria-label": "Metric" }, buttons),
    job.summary.losses.length > 0 && select,
    node !== undefined && h("a", { href: job.link({ view: "contexts", node }) },
      `Choose another context (now ${frameName(contexts.frame(node))})`),
  );
}

/** The ranks with the largest and smallest values in words. */
function extremes(
  series: Series[],
  numbers: number[],
  means: (number | null)[],
  { text }: RankMetric,
): HTMLElement {
  return h("ul", { class: "plain extremes" }, series.map(({ name, y }, at) => {
    let [most, least] = [0, 0];
    for (let index = 1; index < y.length; index += 1) {
      if (y[index]! > y[most]!) most = index;
      if (y[index]! < y[least]!) least = index;
    }
    return h("li", {}, `${name}: most on rank ${numbers[most]} (${text(y[most])}), least ` +
      `on rank ${numbers[least]} (${text(y[least])}), mean ${text(means[at])}`);
  }));
}

/** What is known of a context without the times of single ranks. */
function bounds(contexts: Contexts, wanted: number[], ranks: number): HTMLElement {
  return table("Inclusive time over all ranks", ["Context", "Mean", "Least", "Most"],
    wanted.map((node) => [
      frameName(contexts.frame(node)),
      seconds(contexts.value("inclusive.mean_s", node)),
      seconds(leastTime(contexts, node, "inclusive", ranks)),
      seconds(contexts.value("inclusive.max_s", node)),
    ]));
}

/** Lets the user give the page the file beside the summary: no page may read it by itself. */
function chooser(job: Job): HTMLElement {
  const input = h("input", { type: "file", accept: ".npz", onchange: () => {
    const file = input.files?.[0];
    if (!file) return;
    readRankFile(file).then((times) => job.setRankTimes(times), (error: unknown) => {
      said.textContent = `The file cannot be read: ${String(error)}`;
    });
  } });
  const said = h("output", {});
  const name = job.summary.per_rank.file ?? "*.plimsoll.npz";
  return h("label", { class: "chooser" }, `Read all of them from ${name}: `, input, said);
}

/** Begins of nodes, where these hold neighbouring ranks. */
function hostRules(job: Job): Rule[] {
  const { nodes } = job.summary.run;
  if (nodes.length < 2 || nodes.length > MAX_RULES) return [];
  return nodes.map(({ ranks, host }) => ({ x: Number.parseInt(ranks, 10) - 0.5, label: host }));
}

function clusters(job: Job): Child {
  const { clusters, run } = job.summary;
  if (clusters.length === 0) return h("p", {}, "The ranks were not compared.");
  return table("Clusters of ranks", ["Ranks", "Number", "Nearest to their mean", "Distance"],
    clusters.map((cluster) => [
      rankWords(cluster.ranks, run.ranks), count(cluster.size), `rank ${cluster.representative}`,
      cluster.distance === null ? "\u2013" : percent(cluster.distance),
    ]));
}

function nodes(job: Job): Child {
  const { run } = job.summary;
  if (run.nodes.length === 0) return h("p", {}, "The nodes are not known.");
  return table("Nodes of the job", ["Host", "Ranks", "Number", "Cores for the job"],
    run.nodes.map((node) => [node.host, node.ranks, count(size(node.ranks)), count(node.cores)]));
}
