/** Iterations of a loop: which numbers a duration stands for, and when an iteration began. */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { common, holds, numbersIn, size } from "./format";
import type { Loop, Loss } from "./summary";

/** Iterations from which on a loop is likely to be the one that the run is about. */
const MANY_ITERATIONS = 10;

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

/** The loops around the first cause or the symptom of a loss, innermost first. */
function loopsAround(loops: Loop[], loss: Loss): number[] {
  const paths = [loss.causes[0]?.path ?? [], loss.symptom.path];
  const found = loops.map((_, index) => index).filter((index) => {
    const { path } = loops[index]!;
    return paths.some((other) => common([path, other]) === path.length);
  });
  return found.sort((a, b) => loops[b]!.path.length - loops[a]!.path.length);
}

/** The loop of a loss with durations of iterations, else the hottest one. */
export function wanted(loops: Loop[], loss: Loss | null): number {
  const around = loss ? loopsAround(loops, loss) : [];
  return around.find((index) => loops[index]!.durations_s.length > 1) ?? hottest(loops);
}

/**
 * Number of consecutive iterations that each duration is the mean of. In files of earlier versions,
 * the power of two with which the durations add up to an execution of the loop.
 */
export function stride({ durations_s, mean_duration_s, stride }: Loop): number {
  if (stride !== null) return stride;
  const sum = durations_s.reduce((sum, duration) => sum + duration, 0);
  if (!(sum > 0) || !(mean_duration_s > sum)) return 1;
  return 2 ** Math.round(Math.log2(mean_duration_s / sum));
}

/** For each duration, the number of the first iteration that it stands for. */
export function firstIterations(loop: Loop): number[] {
  const numbers = numbersIn(loop.first_iterations, loop.durations_s.length);
  if (numbers.length === loop.durations_s.length) return numbers;
  return loop.durations_s.map((_, index) => index * stride(loop));
}

/** The iterations from a first one on that a duration stands for: `12`, or `12-15`. */
export function numbersFrom(loop: Loop, first: number): string {
  const { accepted, rejected } = loop.iterations;
  const behind = Math.max(accepted + rejected, first + 1);
  const last = Math.min(first + stride(loop), behind) - 1;
  return first === last ? String(first) : `${first}-${last}`;
}

/**
 * Iterations of an execution: the calls of the loop's region where they are proven, else a lower
 * bound; rejected stretches may be no iterations.
 */
export function iterationsOf({ iterations }: Loop): number {
  const { accepted, rejected, calls_seen, exact } = iterations;
  return Math.max(exact ? calls_seen ?? accepted + rejected : accepted, 1);
}

/**
 * Whether the iterations of a loop may be named by their numbers, as in the text report: where
 * samples missed iterations, numbers are too small, and one that is not below the bound shows that.
 */
export function isNumbered(loop: Loop): boolean {
  const lists = loop.clusters.map(({ iterations }) => numbersIn(iterations, 100_000));
  const numbers = [firstIterations(loop), ...lists].flat();
  return loop.iterations.exact || numbers.every((number) => number < iterationsOf(loop));
}

/** Executions of the loop on each of its ranks, on average. */
export function executionsPerRank(loop: Loop): number {
  return loop.executions / Math.max(size(loop.ranks), 1);
}

/** When the iterations of a loop began. */
export interface Rulings {
  /** Times since the begin of the run, ascending, and the end of the last iteration. */
  times: number[];
  /** The iteration that begins at each of the times but the last. */
  numbers: number[];
  /** Whether the numbers may be shown. */
  isNumbered: boolean;
  /** What the times may be off by, in seconds; null if samples saw the iterations begin. */
  within_s: number | null;
}

/**
 * When the iterations of a loop began: where samples saw them begin, else from their durations and
 * from the cells in which the loop runs, which say where the loop begins and ends to a column's
 * width. A sentence where that is not known.
 */
export function rulings(loop: Loop, data: TimelineData, contexts: Contexts): Rulings | string {
  if (executionsPerRank(loop) > 1) {
    return "The loop ran more than once on a rank: when each iteration was is not known.";
  }
  if (loop.durations_s.length < 2) return "How long single iterations took is not known.";
  const seen = observed(loop);
  if (seen) return seen;
  const span = columnsOf(loop, data, contexts);
  if (!span) return "The timeline does not show the loop.";
  const step = stride(loop);
  const numbers = firstIterations(loop);
  const ends: number[] = [];
  let sum = 0;
  loop.durations_s.forEach((duration, index) => {
    const left = Math.max(loop.iterations.accepted + loop.iterations.rejected - numbers[index]!, 1);
    sum += duration * Math.min(step, left);
    ends.push(sum);
  });
  const width = (data.end_s - data.begin_s) / data.columns;
  const first = data.begin_s + span[0] * width;
  const behind = data.begin_s + span[1] * width;
  // Durations are means over the ranks that told an iteration apart: together they are scaled to the
  // execution. The begin lies in the first column, the end in the last one.
  const whole = loop.mean_duration_s;
  const begin = Math.min(Math.max((first + behind - whole) / 2, first), first + width);
  return {
    times: [begin, ...ends.map((end) => begin + (end * whole) / sum)],
    numbers,
    isNumbered: isNumbered(loop),
    within_s: Math.max(width, Math.abs(behind - first - whole) / 2, Math.abs(whole - sum)),
  };
}

/** When samples saw iterations begin; null if they saw fewer than two. */
function observed(loop: Loop): Rulings | null {
  const all = firstIterations(loop);
  const times: number[] = [];
  const numbers: number[] = [];
  let end = 0;
  loop.begins_s.forEach((begin, index) => {
    if (begin === null) return;
    // A rank's run may begin before the reference's.
    times.push(Math.max(begin, 0));
    numbers.push(all[index]!);
    const { accepted, rejected } = loop.iterations;
    const left = Math.max(accepted + rejected - all[index]!, 1);
    end = begin + loop.durations_s[index]! * Math.min(stride(loop), left);
  });
  if (times.length < 2) return null;
  return { times: [...times, end], numbers, isNumbered: isNumbered(loop), within_s: null };
}

/** The first column in which a rank runs the loop, and the one behind the last. */
function columnsOf(loop: Loop, data: TimelineData, contexts: Contexts): [number, number] | null {
  const isIn = data.nodes.map((node) => contexts.has(node) && contexts.isWithin(node, loop.node));
  let [first, behind] = [data.columns, 0];
  data.rows.forEach(({ ranks }, row) => {
    if (!holds(loop.ranks, Number.parseInt(ranks, 10))) return;
    for (let column = 0; column < data.columns; column += 1) {
      const place = data.cells[row * data.columns + column]!;
      if (place < 0 || !isIn[place]) continue;
      first = Math.min(first, column);
      behind = Math.max(behind, column + 1);
    }
  });
  return first < behind ? [first, behind] : null;
}
