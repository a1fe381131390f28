/** Rows of the calling-context, callers and flat views (SC10, IV). */

import type { Contexts } from "./contexts";
import type { Frame } from "./summary";
import { type Metric, total } from "./metrics";

export type Mode = "tree" | "callers" | "flat";

/** One row: some contexts of one frame. */
export interface Entry {
  /** Path of frames that names the row: rows keep their state when the order changes. */
  key: string;
  frame: number;
  /** The contexts whose time the row shows. */
  nodes: ArrayLike<number>;
  /** The context that the row stands for, where there is only one. */
  node: number;
  /** Whether the row sums up contexts of one frame; a row of the tree shows its only context. */
  sums: boolean;
  readonly expandable: boolean;
  children: () => Entry[];
}

/** The outermost rows of a view. */
export function entries(contexts: Contexts, mode: Mode): Entry[] {
  if (mode === "tree") return contexts.roots.map((node) => contextEntry(contexts, node));
  const groups = byFrame(contexts, mode === "flat");
  return [...groups].map(([frame, nodes]) => {
    const key = `f${frame}`;
    return mode === "callers"
      ? callerEntry(contexts, key, frame, nodes, nodes)
      : flatEntry(contexts, key, frame, nodes);
  });
}

function contextEntry(contexts: Contexts, node: number): Entry {
  const below = contexts.below(node);
  return {
    key: `n${node}`,
    frame: contexts.frameIndex(node),
    nodes: [node],
    node,
    sums: false,
    expandable: below.length > 0,
    children: () => Array.from(below, (child) => contextEntry(contexts, child)),
  };
}

/**
 * All contexts by their frame; `functions`: loops and lines stand with what holds them. Calls of one
 * MPI function at several lines are together, under the frame of the first one.
 */
function byFrame(contexts: Contexts, functions: boolean): Map<number, number[]> {
  const groups = new Map<number, number[]>();
  const calls = new Map<string, number>();
  for (let node = 0; node < contexts.length; node += 1) {
    if (functions && isPart(contexts, node)) continue;
    let frame = contexts.frameIndex(node);
    const { kind, function: name, module } = contexts.frame(node);
    if (kind === "mpi") {
      const call = `${name} ${module}`;
      frame = calls.get(call) ?? frame;
      calls.set(call, frame);
    }
    group(groups, frame, node);
  }
  return groups;
}

/** The frame of a row; a row that sums up calls of an MPI function has no line. */
export function shownFrame(contexts: Contexts, { frame, sums }: Entry): Frame {
  const shown = contexts.frames[frame]!;
  return sums && shown.kind === "mpi" ? { ...shown, file: null, line: null } : shown;
}

function group(groups: Map<number, number[]>, frame: number, node: number): void {
  const known = groups.get(frame);
  if (known) known.push(node);
  else groups.set(frame, [node]);
}

/** Whether a context is a loop or a line, which a function holds. */
function isPart(contexts: Contexts, node: number): boolean {
  const { kind } = contexts.frame(node);
  return (kind === "loop" || kind === "line") && contexts.parent(node) !== null;
}

/** A function with all its contexts, and below it its loops and lines. */
function flatEntry(contexts: Contexts, key: string, frame: number, nodes: number[]): Entry {
  const parts = () => {
    const found = new Map<number, number[]>();
    for (const node of nodes) {
      const open = [...contexts.below(node)];
      for (let child = open.pop(); child !== undefined; child = open.pop()) {
        if (!isPart(contexts, child)) continue;
        group(found, contexts.frameIndex(child), child);
        open.push(...contexts.below(child));
      }
    }
    return found;
  };
  return {
    key, frame, nodes, node: nodes[0]!, sums: true,
    get expandable() {
      return nodes.some((node) => contexts.below(node).some((child) => isPart(contexts, child)));
    },
    children: () => [...parts()].map(([part, at]) => ({
      key: `${key}.${part}`,
      frame: part,
      nodes: at,
      node: at[0]!,
      sums: true,
      expandable: false,
      children: () => [],
    })),
  };
}

/**
 * A function as it is called through a chain of callers. `nodes` are the contexts of the function
 * itself, whose time the row shows; `at` are their callers that the row names.
 */
function callerEntry(
  contexts: Contexts,
  key: string,
  frame: number,
  nodes: number[],
  at: number[],
): Entry {
  return {
    key, frame, nodes, node: at[0]!, sums: true,
    get expandable() {
      return at.some((node) => contexts.parent(node) !== null);
    },
    children: () => {
      const callers = new Map<number, { nodes: number[]; at: number[] }>();
      at.forEach((node, index) => {
        const parent = contexts.parent(node);
        if (parent === null) return;
        const caller = contexts.frameIndex(parent);
        const group = callers.get(caller) ?? { nodes: [], at: [] };
        group.nodes.push(nodes[index]!);
        group.at.push(parent);
        callers.set(caller, group);
      });
      return [...callers].map(([caller, group]) => {
        return callerEntry(contexts, `${key}.${caller}`, caller, group.nodes, group.at);
      });
    },
  };
}

/** The value of a metric in a row; `null` where that is not known. */
export function valueOf(contexts: Contexts, metric: Metric, entry: Entry): number | null {
  if (entry.sums) return total(contexts, metric, entry.nodes);
  const value = contexts.column(metric.column)[entry.node]!;
  return Number.isNaN(value) ? null : value;
}

/** Sorts rows by a metric; unknown values come last, and equal ones keep their order. */
export function sorted(
  contexts: Contexts,
  rows: Entry[],
  metric: Metric | "name",
  descending: boolean,
): Entry[] {
  const sign = descending ? -1 : 1;
  if (rows.length < 2) return rows;
  if (metric === "name") {
    const name = (entry: Entry) => contexts.frames[entry.frame]?.function ?? "";
    return [...rows].sort((a, b) => sign * name(a).localeCompare(name(b)));
  }
  const valued = rows.map((entry) => ({ entry, value: valueOf(contexts, metric, entry) }));
  valued.sort((a, b) => {
    if (a.value === null || b.value === null) {
      return Number(a.value === null) - Number(b.value === null);
    }
    return sign * (a.value - b.value);
  });
  return valued.map(({ entry }) => entry);
}
