/** A comparison of runs, as far as the page shows it: `analysis/schema/` describes every key. */

import type { Frame } from "./summary";

export const CLASSES = ["work", "waiting", "communication", "io"] as const;
export type TimeClass = (typeof CLASSES)[number];
export type ByClass = Partial<Record<TimeClass, number>>;

export interface Spread {
  mean: number;
  min: number;
  max: number;
  stddev: number | null;
}

export interface SetupRow {
  executable: string;
  arguments: string[];
  ranks: number;
  threads: number;
  nodes: number;
  mpi: string | null;
  runs: string[];
  elapsed_s: Spread;
}

export interface ScalingRow {
  ranks: number;
  elapsed_s: number;
  speedup: number | null;
  parallel: number | null;
  load_balance: number | null;
  communication: number | null;
  computation_scaling: number | null;
  /** Factors of computation scaling; null without counted instructions and cycles. */
  instruction_scaling?: number | null;
  ipc_scaling?: number | null;
  frequency_scaling?: number | null;
  ipc?: number | null;
  global: number | null;
}

export interface Prediction {
  ranks: number;
  value_s: number;
  low_s: number;
  high_s: number;
}

export interface Growth {
  quantity: "total_s" | "mean_s" | "seconds";
  model: string;
  decided: boolean;
  alternatives: string[];
  predictions: Prediction[];
  curve: Prediction[];
}

export interface ComparedContext {
  name: string;
  path: Frame[];
  rest: boolean;
  total_s: number[];
  mean_s: number[];
  exclusive_s: number[];
  calls: number[];
  excess: {
    inclusive: number;
    exclusive: number;
    pairs: number[];
    ensemble: number;
    ensemble_exclusive: number;
    by_class: ByClass;
  };
  growth: Growth | null;
}

export interface Finding {
  context: number;
  class: TimeClass;
  excess: number;
  seconds: number;
  share: number;
  sentence: string;
}

export interface LossChange {
  kind: string;
  symptom: string;
  cause: string | null;
  seconds: number[];
  severity: number[];
  change: "appeared" | "grew" | "unchanged" | "shrank" | "vanished";
  growth: Growth | null;
}

export interface Difference {
  context: number | null;
  name: string;
  before_s: number;
  after_s: number;
  change: number | null;
  run_change: number;
  error: number;
  p_value: number;
  significant: boolean;
}

export interface Comparison {
  verdict: {
    kind: string;
    headline: string;
    sentences: string[];
    value: number;
    fail_above: number | null;
    failed: boolean;
  };
  expectation: { kind: "strong" | "weak" | "same" | "work"; asked: boolean; reason: string };
  setups: SetupRow[];
  scaling: ScalingRow[];
  excess: { fraction: number; ensemble: number; seconds: number; by_class: ByClass };
  findings: Finding[];
  contexts: ComparedContext[];
  losses: LossChange[];
  regression: {
    repetitions: [number, number];
    noise: string;
    tests: number;
    elapsed: Difference;
    contexts: Difference[];
  } | null;
  thresholds: Record<string, number>;
  notes: string[];
}
