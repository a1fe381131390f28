/** A comparison of runs: `types.mjs` makes its types from the schema. */

import type { Finding, WholeExcess } from "../types/comparison";

export type {
  Context as ComparedContext,
  Difference,
  Finding,
  Growth,
  PlimsollDiff1 as Comparison,
  Scaling as ScalingRow,
} from "../types/comparison";

export type TimeClass = Finding["class"];
export type ByClass = WholeExcess["by_class"];
