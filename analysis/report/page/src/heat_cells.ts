/** The cells of a bicluster's heat map: contexts over ranks, as differences from a row's mean. */

import type { RankTimes } from "./blocks";
import { counted, numbersIn } from "./format";
import type { Bicluster } from "./summary";

/** Maximum number of columns of a heat map: more would be narrow, and slow to lay out. */
const MAX_COLUMNS = 64;
/** Maximum number of rows of a heat map. */
const MAX_ROWS = 12;
/** Shades per sign. Each shade begins at half the difference at which the next one begins. */
export const SHADES = 4;

/** One rank, or consecutive ranks of the group, or consecutive ranks outside of it. */
export interface HeatColumn {
  /** Smallest and largest rank. */
  first: number;
  last: number;
  /** Number of ranks. */
  size: number;
  /** Whether the ranks belong to the group. */
  isMember: boolean;
}

interface HeatRow {
  /** Context, as index of the tree. */
  node: number;
  /** Mean over all ranks with a value, in seconds or events. */
  mean: number;
  /** Mean of each column's ranks minus `mean`; NaN if no rank of the column has a value. */
  differences: Float64Array;
}

export interface HeatCells {
  /** Columns of the group, then columns of the other ranks, both ascending. */
  columns: HeatColumn[];
  /** Rows with the largest variance over ranks first. */
  rows: HeatRow[];
  /** Largest absolute difference of a cell; 0 if all cells are equal. */
  largest: number;
  /** Contexts of the group without values of single ranks. */
  missing: number[];
  /** Number of contexts beyond `MAX_ROWS`, which vary less than the rows. */
  omitted: number;
}

/** Returns the cells of a group. `rows` is empty if the table has none of the group's contexts. */
export function heatCells(group: Bicluster, times: RankTimes): HeatCells {
  const name = group.event ? `${group.event}.exclusive` : "exclusive_s";
  const quantity = times.quantities.indexOf(name);
  const places = group.nodes.map((node) => times.nodes.indexOf(node));
  const isKnown = (at: number) => quantity >= 0 && places[at]! >= 0;
  const of = layout(group, times);
  const all = group.nodes.flatMap((node, at) => {
    return isKnown(at) ? [row(node, times.times(places[at]!, quantity), of)] : [];
  });
  all.sort((a, b) => b.variance - a.variance);
  const rows = all.slice(0, MAX_ROWS);
  let largest = 0;
  for (const { differences } of rows) {
    for (const value of differences) if (Math.abs(value) > largest) largest = Math.abs(value);
  }
  return {
    columns: of.columns,
    rows,
    largest,
    missing: group.nodes.filter((_, at) => !isKnown(at)),
    omitted: all.length - rows.length,
  };
}

/** The shade of a difference, from -`SHADES` to `SHADES`: 0 near the mean, negative below it. */
export function shade(difference: number, largest: number): number {
  const size = Math.abs(difference);
  for (let step = SHADES; step > 0; step -= 1) {
    if (size > 0 && size >= shadeBegin(step, largest)) return step * Math.sign(difference);
  }
  return 0;
}

/** The smallest difference of a shade. */
export function shadeBegin(step: number, largest: number): number {
  return largest / 2 ** (SHADES + 1 - step);
}

/** A sentence about columns of several ranks; `null` if each rank has a column of its own. */
export function binning({ columns }: HeatCells): string | null {
  const parts = [true, false].flatMap((isMember) => {
    const sizes = columns.filter((column) => column.isMember === isMember).map(({ size }) => size);
    const most = Math.max(...sizes);
    const side = isMember ? "of the group" : "of the others";
    return most > 1 ? [`${side} up to ${counted(most, "rank")}`] : [];
  });
  return parts.length === 0 ? null : "A column is the mean of neighbouring ranks: " +
    `${parts.join(", ")}.`;
}

/** The columns, and the column of each rank at its place in the table. */
interface Layout {
  columns: HeatColumn[];
  columnOf: Uint8Array;
}

function layout(group: Bicluster, times: RankTimes): Layout {
  const members = new Set(numbersIn(group.ranks, times.count));
  const [inside, outside]: [number[], number[]] = [[], []];
  const ranks = numbersIn(times.ranks, times.count);
  ranks.forEach((rank, place) => (members.has(rank) ? inside : outside).push(place));
  const columns: HeatColumn[] = [];
  const columnOf = new Uint8Array(times.count);
  const add = (places: number[], most: number, isMember: boolean) => {
    const number = Math.min(places.length, most);
    for (let at = 0; at < number; at += 1) {
      const [from, to] = [at, at + 1].map((edge) => Math.floor((places.length * edge) / number));
      const part = places.slice(from, to);
      for (const place of part) columnOf[place] = columns.length;
      const [first, last] = [ranks[part[0]!]!, ranks[part[part.length - 1]!]!];
      columns.push({ first, last, size: part.length, isMember });
    }
  };
  // Each side has at least half of the columns, if it needs them.
  add(inside, Math.max(MAX_COLUMNS / 2, MAX_COLUMNS - outside.length), true);
  add(outside, MAX_COLUMNS - columns.length, false);
  return { columns, columnOf };
}

/** A row and its variance. Ranks without a value, NaN, count nowhere. */
function row(
  node: number,
  values: Float32Array,
  { columns, columnOf }: Layout,
): HeatRow & { variance: number } {
  const sums = new Float64Array(columns.length);
  const known = new Uint32Array(columns.length);
  for (let place = 0; place < values.length; place += 1) {
    const value = values[place]!;
    if (Number.isNaN(value)) continue;
    sums[columnOf[place]!]! += value;
    known[columnOf[place]!]! += 1;
  }
  const add = (sum: number, value: number) => sum + value;
  const total = known.reduce(add, 0);
  const mean = sums.reduce(add, 0) / total;
  let squares = 0;
  for (const value of values) if (!Number.isNaN(value)) squares += (value - mean) ** 2;
  const differences = sums.map((sum, at) => sum / known[at]! - mean);
  return { node, mean, differences, variance: total > 0 ? squares / total : 0 };
}
