/** Words that the sections of a comparison share. */

import type { Comparison } from "./comparison";
import { counted, frameName, percent } from "./format";
import type { Frame } from "./summary";

/** A path in one line; frames of one name that follow each other are named once. */
export function pathOf(path: Frame[]): string {
  const names = path.map(frameName);
  return names.filter((name, index) => name !== names[index - 1]).join(" > ");
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
