/** One context in full: its path, all its numbers, and where else it appears. */

import type { Contexts } from "./contexts";
import { type Child, facts, fill, h, table } from "./dom";
import { calls, capital, count, frameName, percent, place, seconds, words } from "./format";
import type { Job } from "./job";
import { sourceLines } from "./source_lines";

/** The details of a context. */
export function contextDetails(job: Job, contexts: Contexts, node: number): HTMLElement {
  const frame = contexts.frame(node);
  const value = (name: string) => contexts.value(name, node);
  const balanced = value("balanced");
  const seen: [string, Child][] = [
    ["Kind", `${frame.kind}, ${contexts.labelWords(node)}`],
    ["Source", place(frame) || "unknown"],
    ["Module", frame.module || "unknown"],
    ["Calls", calls(value("calls") ?? 0, contexts.isCounted(node))],
    ["Imbalance", seconds(value("imb_s"))],
    ["... below it", seconds(value("sum_imb_s"))],
    ["Wait", seconds(value("wait_s"))],
    ["... below it", seconds(value("sum_wait_s"))],
    ["Idleness", seconds(value("idle_s"))],
    ["Blame", `${seconds(value("blame_inclusive_s"))}, alone ${seconds(value("blame_exclusive_s"))}`],
    ["Balance point", balanced === 255 ? "unknown" : balanced === 1 ? "yes" : "no"],
  ];
  for (const counter of contexts.counters()) {
    const sum = value(`counters.${counter}`);
    seen.push(counter.endsWith("_s")
      ? [capital(words(counter.slice(0, -2))), `${seconds(sum)}, all ranks`]
      : [capital(words(counter)), number(sum)]);
  }
  const source = h("div", {});
  void job.sources().then((sources) => fill(source, sourceLines(sources, contexts, node)));
  return h("div", {},
    h("h2", {}, frameName(frame)),
    h("p", { class: "links" },
      h("a", { href: job.link({ view: "ranks", node }) }, "Over the ranks"),
      h("a", { href: job.link({ view: "timeline", node }) }, "In the timeline")),
    lossesOf(job, node),
    times(job, contexts, node),
    source,
    facts(seen),
    h("h3", {}, "Call path"),
    h("ol", { class: "stack" }, contexts.path(node).map((above) => h("li", {},
      above === node
        ? h("strong", {}, frameName(contexts.frame(above)))
        : h("a", { href: job.link({ ...job.address, view: "contexts", node: above }) },
          frameName(contexts.frame(above))),
      h("span", { class: "aside" }, ` ${place(contexts.frame(above))}`)))),
  );
}

function number(value: number | null): string {
  if (value === null) return "unknown";
  return Number.isInteger(value) ? count(value) : value.toPrecision(4);
}

/** Minimum of a time over all ranks: 0 if one lacks the context. */
export function leastTime(contexts: Contexts, node: number, metric: string, ranks: number) {
  const having = contexts.value(`${metric}.ranks`, node);
  return having !== null && having < ranks ? 0 : contexts.value(`${metric}.min_observed_s`, node);
}

/** Inclusive and exclusive time over the ranks. */
function times(job: Job, contexts: Contexts, node: number): HTMLElement {
  const ranks = job.summary.run.ranks;
  const column = (metric: string) => {
    const value = (name: string) => contexts.value(`${metric}.${name}`, node);
    const [mean, observed, having] = [value("mean_s"), value("min_observed_s"), value("ranks")];
    const least = leastTime(contexts, node, metric, ranks);
    const elapsed = job.summary.run.elapsed_s;
    return [
      seconds(mean), elapsed > 0 && mean !== null ? percent(mean / elapsed) : "unknown",
      seconds(least), seconds(observed), seconds(value("max_s")), seconds(value("stddev_s")),
      seconds(mean === null ? null : mean * ranks), count(having),
    ];
  };
  const names = [
    "Mean", "... of the run", "Least", "... of those", "Most", "Deviation", "Sum", "Ranks",
  ];
  const [inclusive, exclusive] = [column("inclusive"), column("exclusive")];
  return table("Time over the ranks", ["", "Inclusive", "Exclusive"],
    names.map((name, index) => [name, inclusive[index]!, exclusive[index]!]));
}

/** The losses that name the context. */
function lossesOf(job: Job, node: number): Child {
  const found: [number, string][] = [];
  job.summary.losses.forEach((loss, index) => {
    if (loss.symptom.node === node) found.push([index, "symptom"]);
    else if (loss.causes.some((cause) => cause.node === node)) found.push([index, "cause"]);
  });
  return found.length > 0 && h("ul", { class: "plain" }, found.map(([index, role]) => h("li", {},
    h("span", { class: `badge ${role}` }, role), " of ",
    h("a", { href: job.link({ view: "verdict", loss: index }) }, `loss ${index + 1}`))));
}
