/** Values of single ranks in a context: those of the table, and those that follow from them. */

import type { RankTimes } from "./blocks";
import type { Contexts } from "./contexts";
import { count, seconds } from "./format";

export interface RankMetric {
  id: string;
  /** Name on a button. */
  name: string;
  /** The metric as the begin of a title. */
  title: string;
  help: string;
  text: (value: number | null | undefined) => string;
}

export const RANK_METRICS: RankMetric[] = [
  {
    id: "inclusive_s", name: "Inclusive", title: "Inclusive time", text: seconds,
    help: "Time in the context and in all that it calls",
  },
  {
    id: "exclusive_s", name: "Exclusive", title: "Exclusive time", text: seconds,
    help: "Time in the context alone",
  },
  {
    id: "wait", name: "Wait", title: "Waiting", text: seconds,
    help: "Time in calls below the context that wait or communicate without moving data",
  },
  {
    id: "blame", name: "Blame", title: "Blame", text: seconds,
    help: "The rank's idleness that the context and what it calls are blamed for (SC10)",
  },
  {
    id: "calls", name: "Calls", title: "Calls", text: count,
    help: "Calls of the context; a lower bound where the view Contexts shows one",
  },
];

export function rankMetric(id: string | undefined): RankMetric {
  return RANK_METRICS.find((metric) => metric.id === id) ?? RANK_METRICS[0]!;
}

/** Values of the ranks, in their order. */
interface RankValues {
  values: ArrayLike<number>;
  /** The mean over all ranks, from the tree; `null` where it is not known. */
  mean: number | null;
  /** Whether the table lacks contexts that the values need: these are lower bounds then. */
  isBound: boolean;
}

/** The values of a metric in a context; `null` where the table does not have them. */
export function rankValues(
  contexts: Contexts,
  times: RankTimes,
  { id }: RankMetric,
  node: number,
  ranks: number,
): RankValues | null {
  if (id === "wait" || id === "blame") return idleness(contexts, times, node, id === "blame");
  const [place, quantity] = [times.nodes.indexOf(node), times.quantities.indexOf(id)];
  if (place < 0 || quantity < 0) return null;
  const calls = contexts.value("calls", node);
  return {
    values: times.times(place, quantity),
    mean: id !== "calls" ? contexts.value(`${id.slice(0, 9)}.mean_s`, node)
      : calls === null ? null : calls / Math.max(ranks, 1),
    isBound: id === "calls" && !contexts.isCounted(node),
  };
}

/**
 * The ranks' idleness below a context. `idle_s` is the mean idleness of a context with its callees:
 * its innermost contexts with some are the waiting calls. In a call that moves data only a part of
 * the time is idle, the same part on each rank. `blamed`: only idleness with its balance point at or
 * below the context (SC10, equations 3 and 4).
 */
function idleness(
  contexts: Contexts,
  times: RankTimes,
  node: number,
  blamed: boolean,
): RankValues | null {
  const quantity = times.quantities.indexOf("inclusive_s");
  if (quantity < 0) return null;
  const values = new Float64Array(times.count);
  const [idle, means] = [contexts.column("idle_s"), contexts.column("inclusive.mean_s")];
  let [mean, isBound] = [0, false];
  for (let call = node; call < contexts.length; call += 1) {
    if (!(idle[call]! > 0) || contexts.below(call).some((below) => idle[below]! > 0)) continue;
    if (!contexts.isWithin(call, node)) continue;
    if (blamed && !isBlamed(contexts, call, node)) continue;
    mean += idle[call]!;
    const place = times.nodes.indexOf(call);
    if (place < 0) {
      isBound = true;
      continue;
    }
    const part = means[call]! > 0 ? idle[call]! / means[call]! : 0;
    const of = times.times(place, quantity);
    for (let rank = 0; rank < times.count; rank += 1) values[rank]! += of[rank]! * part;
  }
  return { values, mean, isBound };
}

/** Whether the balance point around a waiting call is `node` or below it. */
function isBlamed(contexts: Contexts, call: number, node: number): boolean {
  const balanced = contexts.column("balanced");
  let at = contexts.parent(call);
  while (at !== null && balanced[at] !== 1) at = contexts.parent(at);
  return at !== null && contexts.isWithin(at, node);
}
