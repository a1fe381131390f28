/** Words that the sections of a comparison share. */

import type { Comparison } from "./comparison";
import { counted, percent } from "./format";

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
