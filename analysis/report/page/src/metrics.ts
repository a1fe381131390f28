/** The metrics of contexts: how they read, and how they add up in the callers and flat views. */

import type { Contexts } from "./contexts";
import { calls, count, seconds } from "./format";

/** How the value of several contexts comes from theirs. */
type Sum =
  /** The sum over contexts without a caller of the same frame. */
  | "outermost"
  /** The sum over all contexts. */
  | "all"
  /** Likewise "outermost", but the true value may be smaller: the slowest ranks may differ. */
  | "at most"
  | "maximum";

export interface Metric {
  id: string;
  title: string;
  help: string;
  column: string;
  sum: Sum;
  unit: "seconds" | "calls" | "ranks";
}

export const METRICS: Metric[] = [
  {
    id: "inclusive",
    title: "Inclusive",
    help: "Time in the context and in all that it calls, mean over all ranks",
    column: "inclusive.mean_s",
    sum: "outermost",
    unit: "seconds",
  },
  {
    id: "exclusive",
    title: "Exclusive",
    help: "Time in the context alone, mean over all ranks; a function with its own loops and " +
      "inlined code",
    column: "exclusive.mean_s",
    sum: "all",
    unit: "seconds",
  },
  {
    id: "slowest",
    title: "Slowest",
    help: "Inclusive time on the rank with the longest",
    column: "inclusive.max_s",
    sum: "at most",
    unit: "seconds",
  },
  {
    id: "imbalance",
    title: "Imbalance",
    help: "How much longer the slowest rank takes than the mean, by phases (ICS18, Table 1)",
    column: "imb_s",
    sum: "at most",
    unit: "seconds",
  },
  {
    id: "wait",
    title: "Wait",
    help: "Waiting in the context (ICS18, Table 1)",
    column: "wait_s",
    sum: "outermost",
    unit: "seconds",
  },
  {
    id: "blame",
    title: "Blame",
    help: "Idleness of other ranks blamed on the context alone (SC10)",
    column: "blame_exclusive_s",
    sum: "all",
    unit: "seconds",
  },
  {
    id: "calls",
    title: "Calls",
    help: "Calls, the sum over all ranks; \u2265 is a lower bound from samples",
    column: "calls",
    sum: "all",
    unit: "calls",
  },
  {
    id: "ranks",
    title: "Ranks",
    help: "Number of ranks that have the context",
    column: "inclusive.ranks",
    sum: "maximum",
    unit: "ranks",
  },
];

export function metric(id: string): Metric {
  return METRICS.find((metric) => metric.id === id) ?? METRICS[0]!;
}

/** The value of a metric in some contexts of one frame; `null` where that is not known. */
export function total(contexts: Contexts, metric: Metric, nodes: ArrayLike<number>): number | null {
  const values = contexts.column(metric.column);
  let sum: number | null = null;
  for (let index = 0; index < nodes.length; index += 1) {
    const node = nodes[index]!;
    const value = values[node]!;
    if (Number.isNaN(value)) continue;
    if (metric.sum === "maximum") sum = Math.max(sum ?? 0, value);
    else if (metric.sum === "all" || contexts.outermost[node] === 1) sum = (sum ?? 0) + value;
    else sum ??= 0;
  }
  return sum;
}

/** The value as text; `several`: it is a sum over more than one context. */
export function shown(
  contexts: Contexts,
  metric: Metric,
  value: number | null,
  nodes: ArrayLike<number>,
): string {
  if (value === null) return "unknown";
  if (metric.unit === "calls") return calls(value, every(nodes, (node) => contexts.isCounted(node)));
  if (metric.unit === "ranks") return count(value);
  const bound = metric.sum === "at most" && nodes.length > 1 && value > 0 ? "\u2264\u00a0" : "";
  return bound + seconds(value);
}

function every(nodes: ArrayLike<number>, holds: (node: number) => boolean): boolean {
  for (let index = 0; index < nodes.length; index += 1) {
    if (!holds(nodes[index]!)) return false;
  }
  return true;
}
