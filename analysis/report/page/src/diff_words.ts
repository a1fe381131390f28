/** Words that the sections of a comparison share. */

import type { Comparison, TimeClass } from "./comparison";
import { counted, percent } from "./format";

/** The classes of time in words. */
export const CLASS_NAMES: Record<TimeClass, string> = {
  work: "work", waiting: "waiting", communication: "communication", io: "I/O",
};
export const CLASSES = Object.keys(CLASS_NAMES) as TimeClass[];

/** Ranks grow by factors: an axis of ranks is their logarithm. */
export function log2({ ranks }: { ranks: number }): number {
  return Math.log2(ranks);
}

/** The number of ranks at a place on such an axis. */
export function ranksText(x: number): string {
  return String(Math.round(2 ** x));
}

/** A change with its sign. */
export function signed(fraction: number): string {
  return `${fraction > 0 ? "+" : ""}${percent(fraction)}`;
}

/** How columns name the set-ups: by their ranks, versions of equal size by their order. */
export function setupNames({ setups, expectation }: Comparison): string[] {
  if (expectation.kind === "same" && setups.length === 2) return ["before", "after"];
  const ranks = setups.map((setup) => setup.ranks);
  const twice = (rank: number) => ranks.indexOf(rank) !== ranks.lastIndexOf(rank);
  return ranks.map((rank, index) => {
    return twice(rank) ? `${counted(rank, "rank")} (${index + 1})` : counted(rank, "rank");
  });
}
