/** The summary of a job, as far as the page shows it: `analysis/schema/` describes every key. */

export interface Frame {
  kind: "function" | "loop" | "inlined" | "mpi" | "line";
  function: string;
  file: string | null;
  line: number | null;
  offset?: number | null;
  module: string;
}

export interface Cause {
  path: Frame[];
  node: number;
  group: number | null;
  seconds: number;
  share: number;
  mean_s: number;
  max_s: number;
  /** Absent without counted instructions and cycles. */
  difference?: WorkDifference;
}

/** Why a context takes longer on slow ranks than on the others. */
export interface WorkDifference {
  kind: "more_work" | "slower_work";
  share: number;
  ranks: string;
  time_factor: number;
  instructions_factor: number;
  ipc: number;
  ipc_of_others: number;
}

export interface Symptom {
  path: Frame[];
  node: number;
  mean_s: number;
  min_s: number;
  max_s: number;
  calls: number;
  calls_exact: boolean;
  per_call_s: number | null;
  bytes: number | null;
  breakdown: Record<string, number>;
}

export interface When {
  kind: string;
  from_s: number;
  to_s: number;
}

export interface WaitsFor {
  ranks: string;
  share: number;
}

export interface Loss {
  kind: string;
  severity: number;
  seconds: number;
  elapsed_without_s: number;
  phase: number;
  group: number | null;
  label: string;
  polling: boolean;
  evened_out: boolean;
  by_turns?: boolean;
  slow_ranks: string;
  waiting_ranks: string;
  advice: string;
  symptom: Symptom;
  causes: Cause[];
  when?: When | null;
  holders?: LockHolder[] | null;
  waits_for?: WaitsFor[] | null;
  pattern?: string | null;
  /** Host of a slow node or core, and by which factor all work takes longer there. */
  node?: string | null;
  factor?: number | null;
  origin?: { ranks: string; node: number | null; share: number } | null;
}

export interface LockHolder {
  path: Frame[];
  node: number;
  share: number;
}

export interface Efficiencies {
  parallel: number | null;
  load_balance: number | null;
  communication: number | null;
}

export interface EfficiencyWindow extends Efficiencies {
  begin_s: number;
  end_s: number;
}

export interface NodeOfRun {
  host: string;
  ranks: string;
  cores: number;
}

export interface Run {
  executable: string;
  arguments: string[];
  job: string | null;
  started: string;
  elapsed_s: number;
  ranks: number;
  world_ranks?: number | null;
  threads: number;
  nodes: NodeOfRun[];
  mpi: { library: string | null; abi: string };
  period_us: { asked: number; effective: number | null };
  clock: string;
  complete: boolean;
  incomplete?: string | null;
  ended: string;
  settings: Record<string, string>;
}

export interface Collection {
  samples: number;
  lost: number;
  truncated: number;
  marks: { planted: number; hit: number; stale: number; off_reason: string | null };
  mpi_calls: number;
  spool_bytes: number;
  record_bytes: number;
  sampling_cpu_s: number;
  collector_cpu_s: number;
  finalize_s: number | null;
  memory_bytes: number | null;
  late_functions?: number;
  unsampled_threads?: number;
}

export interface RankGroup {
  ranks: string;
  mean_work_s: number;
}

export interface Phase {
  id: number;
  begins_after: Frame[] | null;
  ends_in: Frame[] | null;
  begin_s: number;
  duration_s: number;
  instances: number;
  kind: string;
  groups: RankGroup[];
}

export interface Segment {
  phase: number;
  imb_sync_s: number;
  sum_imb_s: number;
  sum_wait_s: number;
  row: number | null;
  nodes: number[];
}

export interface IterationCluster {
  iterations: string;
  mean_s: number;
  representative?: number | null;
  weight?: number | null;
  period?: number | null;
  distinction?: { node: number; path: Frame[]; mean_s: number; others_s: number } | null;
}

export interface Loop {
  path: Frame[];
  node: number;
  ranks: string;
  executions: number;
  mean_duration_s: number;
  fraction: number;
  iterations: {
    accepted: number;
    rejected: number;
    calls_seen: number | null;
    exact: boolean;
  };
  durations_s: number[];
  /** Rank list syntax; empty in files of earlier versions. */
  first_iterations: string;
  stride: number | null;
  begins_s: (number | null)[];
  clusters: IterationCluster[];
}

export interface RankCluster {
  ranks: string;
  size: number;
  representative: number;
  distance: number | null;
}

export interface Bicluster {
  /** perf event that the ranks differ in; null for the time of work. */
  event?: string | null;
  nodes: number[];
  ranks: string;
  sign: number;
  variance_share: number;
}

/** Ranks that were chosen at random to keep their samples (PLIMSOLL_TRACE=sample). */
export interface Population {
  strata: Stratum[];
  confidence: number;
  error: number;
  seed: number;
  achieved_error: number | null;
}

/** Ranks of one cluster. */
export interface Stratum {
  ranks: string;
  sampled: string;
  /** Variance of the work over the ranks, in square seconds. */
  variance: number;
}

export interface ThreadCluster {
  ranks: string;
  size: number;
  routine: string | null;
  mean_s: number;
  work_s: number;
  distance: number | null;
}

/** Times of a thread, or means over some threads. */
export interface ThreadTimes {
  number: number | null;
  threads: number;
  work_s: number;
  time_s: number;
}

export interface KeyThreads {
  initial: ThreadTimes;
  slowest: ThreadTimes;
  fastest: ThreadTimes | null;
  rest: ThreadTimes | null;
}

/** Threads of one process. */
export interface ThreadsOfProcess {
  rank: number;
  threads: number;
  key: KeyThreads | null;
  classes: ThreadTimes[] | null;
}

/** Threads that have the same role in their processes. */
export interface ThreadRole {
  role: string;
  ranks: string;
  threads: number;
  work_s: number;
  min_work_s: number;
  max_work_s: number;
  time_s: number;
}

export interface ProcessThreads {
  aggregation: string;
  roles: ThreadRole[];
  processes: ThreadsOfProcess[];
  unlisted: number;
  distinction: { node: number; path: Frame[]; slowest_s: number; fastest_s: number } | null;
}

/** Shares of the threads with one number in a parallel region. */
export interface ThreadShare {
  number: number;
  work_s: number;
  barrier_s: number;
  lock_s: number;
  mpi_s: number;
}

/** A parallel region in one calling context; times are sums over instances, threads and ranks. */
export interface Region {
  node: number;
  function: string | null;
  file: string | null;
  line: number | null;
  level: number;
  ranks: string;
  threads: number;
  instances: number;
  elapsed_s: number;
  median_s?: number | null;
  thread_s: number;
  work_s: number;
  imbalance_s: number;
  scheduling_s: number;
  load_balance_s: number;
  barrier_s: number;
  lock_s: number;
  mpi_s: number;
  shares: ThreadShare[];
}

/** Executions of explicit tasks with one function. */
export interface Task {
  function: string | null;
  file: string | null;
  line: number | null;
  ranks: string;
  count: number;
  work_s: number;
  longest_s: number;
  median_s?: number | null;
}

export interface OpenMp {
  runtime: string | null;
  regions: Region[];
  tasks: Task[];
  unmeasured: number;
}

/** TALP's efficiencies of teams of threads. */
export interface OpenMpEfficiency {
  parallel: number;
  load_balance: number;
  scheduling: number;
  serialisation: number;
}

export interface Clocks {
  reference: number;
  offsets_us: number[];
  drift_ppm: number[];
  residual_us: number | null;
  method: string;
}

export interface Matrix {
  /** Rank list: a row for each of these ranks. */
  ranks?: string | null;
  clusters?: string[] | null;
  calls?: number[][];
  bytes?: number[][];
  wait_s?: number[][];
}

export interface Summary {
  schema: string;
  run: Run;
  collection: Collection;
  efficiency: Efficiencies & { openmp?: OpenMpEfficiency | null; windows?: EfficiencyWindow[] };
  projection: { elapsed_s: number };
  losses: Loss[];
  segments: Segment[];
  phases: Phase[];
  loops: Loop[];
  clusters: RankCluster[];
  thread_clusters?: ThreadCluster[];
  threads?: ProcessThreads;
  openmp?: OpenMp;
  biclusters?: Bicluster[];
  population?: Population | null;
  clocks: Clocks;
  timeline: { file: string | null };
  per_rank: { file: string | null };
  communication?: { matrix?: Matrix | null } | null;
  thresholds?: Record<string, number>;
  notes?: string[];
}
