/** The summary of a job, as the page gets it: `types.mjs` makes its types from the schema. */

import type { Frame as ComparedFrame } from "../types/comparison";
import type { Frame as SummaryFrame, PlimsollSummaryOfAJob } from "../types/summary";

export type {
  Bicluster,
  Cause,
  Clocks,
  Loop,
  Loss,
  Matrix,
  NodeOfRun,
  Phase,
  ProcessThreads,
  Region,
  Run,
  Task,
  ThreadShare,
  ThreadTimes,
  ThreadsOfProcess,
  When,
  Window as EfficiencyWindow,
  WorkDifference,
} from "../types/summary";

/** A summary without its tree, which comes in columns. */
export type Summary = Omit<PlimsollSummaryOfAJob, "tree">;

/** A frame of a summary, or of a comparison, where frames have no offset. */
export type Frame = ComparedFrame & Partial<SummaryFrame>;
