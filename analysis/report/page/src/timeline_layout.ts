/** Where the rows of the timeline lie: bands of ranks, with the threads of expanded ranks. */

import type { TimelineData } from "./blocks";
import { holds } from "./format";
import type { Summary } from "./summary";
import type { ThreadRows } from "./thread_rows";

export type Order = "cluster" | "rank" | "node";
export const ORDERS: [Order, string][] = [
  ["cluster", "By cluster"], ["rank", "By rank"], ["node", "By node"],
];

/** Rows that stand together: a cluster, a node, or all. */
interface Band {
  name: string;
  rows: number[];
  /** Height of all rows of ranks, in pixels. */
  height: number;
}

/** A row of cells on the canvas, in pixels. */
export interface Lane {
  row: number;
  /** Index of the thread whose cells are shown; `null` for those of the rank. */
  thread: number | null;
  top: number;
  height: number;
}

/** A text beside the rows. */
interface Label {
  text: string;
  /** Middle of the text, in pixels from the top of the canvas. */
  middle: number;
  isOfThread: boolean;
}

/** Height of a thread's row as a part of its rank's, and its bounds in pixels. */
const THREAD_PART = 0.5;
const [MIN_THREAD, MAX_THREAD] = [6, 30];
/** Space below the threads of a rank, in pixels. */
const THREADS_GAP = 3;
/** Maximum height of all rows of threads: a canvas has an end. */
const MAX_THREADS = 4000;
/** Least distance of the labels of ranks and of threads. */
const [RANK_DISTANCE, THREAD_DISTANCE] = [16, 12];

/** The ranks of each band, with its name. */
function sets(summary: Summary, order: Order): { name: string; ranks: string }[] {
  if (order === "node") return summary.run.nodes.map(({ host, ranks }) => ({ name: host, ranks }));
  if (order === "rank") return [];
  return summary.clusters.map(({ ranks, representative, size }) => ({
    name: `${size === 1 ? "" : "like "}rank ${representative}`, ranks,
  }));
}

/** Divides `room` pixels among the bands; a cluster is log2(size + 1) high. */
function bandsOf(summary: Summary, data: TimelineData, order: Order, room: number): [Band[], number] {
  const all = data.rows.map((_, row) => row);
  const named = sets(summary, order);
  const left = new Set(all);
  const bands: Band[] = [];
  for (const { name, ranks } of named) {
    const rows = all.filter((row) => {
      return left.has(row) && holds(ranks, Number.parseInt(data.rows[row]!.ranks, 10));
    });
    rows.forEach((row) => left.delete(row));
    if (rows.length > 0) bands.push({ name, rows, height: 0 });
  }
  if (left.size > 0) bands.push({ name: "", rows: [...left], height: 0 });
  const isLogarithmic = order === "cluster" && named.length > 0;
  const weight = (band: Band) => {
    return isLogarithmic ? Math.log2(band.rows.length + 1) : band.rows.length;
  };
  const gap = bands.length > 1 && bands.length < 60 ? 3 : 0;
  const sum = bands.reduce((sum, band) => sum + weight(band), 0);
  for (const band of bands) {
    band.height = ((room - gap * (bands.length - 1)) * weight(band)) / sum;
  }
  return [bands, gap];
}

/** The rows of the timeline from top to bottom. */
export class TimelineLayout {
  readonly lanes: Lane[] = [];
  readonly labels: Label[] = [];
  /** Height of all rows, in pixels. */
  readonly height: number;

  /** Lays out rows from `top` on; the rows of ranks are `room` pixels high together. */
  constructor(
    summary: Summary, data: TimelineData, threads: ThreadRows | null,
    { order, expanded, top, room }: {
      order: Order; expanded: ReadonlySet<number>; top: number; room: number;
    },
  ) {
    const [bands, gap] = bandsOf(summary, data, order, room);
    const below = (row: number) => (expanded.has(row) ? (threads?.below(row) ?? []) : []);
    const wished = (band: Band) => {
      return Math.min(Math.max((band.height / band.rows.length) * THREAD_PART, MIN_THREAD), MAX_THREAD);
    };
    const all = bands.reduce((sum, band) => {
      return sum + band.rows.reduce((sum, row) => {
        const { length } = below(row);
        return sum + (length > 0 ? length * wished(band) + THREADS_GAP : 0);
      }, 0);
    }, 0);
    const shrunk = Math.min(1, MAX_THREADS / Math.max(all, 1));
    const [ofBands, ofRows, ofThreads]: [Label[], Label[], Label[]] = [[], [], []];
    const label = (text: string, from: number, to: number, isOfThread = false): Label => {
      return { text, middle: (from + to) / 2, isOfThread };
    };
    let at = top;
    for (const band of bands) {
      const begin = at;
      const isExpanded = band.rows.some((row) => below(row).length > 0);
      for (const row of band.rows) {
        const height = band.height / band.rows.length;
        this.lanes.push({ row, thread: null, top: at, height });
        // A band of many rows has one label, unless one of the rows is expanded.
        if (isExpanded || (bands.length === 1 && band.rows.length > 1)) {
          ofRows.push(label(`rank ${data.rows[row]!.ranks}`, at, at + height));
        }
        at += height;
        for (const thread of below(row)) {
          const height = wished(band) * shrunk;
          this.lanes.push({ row, thread, top: at, height });
          ofThreads.push(label(threads?.name(thread) ?? "", at, at + height, true));
          at += height;
        }
        if (below(row).length > 0) at += THREADS_GAP * shrunk;
      }
      const first = data.rows[band.rows[0]!]!.ranks;
      const text = band.name || (band.rows.length > 1 ? "ranks" : `rank ${first}`);
      if (bands.length > 1 || band.rows.length === 1) ofBands.push(label(text, begin, at));
      at += gap;
    }
    this.height = at - gap - top;
    const hasExpanded = ofThreads.length > 0;
    this.write(ofRows, hasExpanded ? THREAD_DISTANCE : RANK_DISTANCE);
    this.write(ofBands, THREAD_DISTANCE + 1);
    this.write(ofThreads, THREAD_DISTANCE);
    this.labels.sort((a, b) => a.middle - b.middle);
  }

  /** Adds labels from top to bottom, as far as they keep a distance from those before. */
  private write(labels: Label[], distance: number): void {
    const taken = this.labels.map(({ middle }) => middle).sort((a, b) => a - b);
    let [below, next] = [-Infinity, 0];
    for (const label of labels) {
      while (next < taken.length && taken[next]! <= label.middle) next += 1;
      const above = Math.max(below, taken[next - 1] ?? -Infinity);
      const under = taken[next] ?? Infinity;
      if (label.middle < above + distance || label.middle > under - distance) continue;
      below = label.middle;
      this.labels.push(label);
    }
  }

  /** The row at a height of the canvas. */
  at(y: number): Lane | null {
    let [first, behind] = [0, this.lanes.length];
    while (behind - first > 1) {
      const middle = (first + behind) >> 1;
      if (this.lanes[middle]!.top <= y) first = middle;
      else behind = middle;
    }
    const lane = this.lanes[first];
    return lane && y >= lane.top && y < lane.top + lane.height ? lane : null;
  }

  /** The rows of ranks. */
  ofRanks(): Lane[] {
    return this.lanes.filter(({ thread }) => thread === null);
  }
}
