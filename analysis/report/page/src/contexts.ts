/** The calling-context tree and what the views read from it. */

import type { Columns } from "./blocks";
import { words } from "./format";
import type { Frame } from "./summary";

const NO_PARENT = 0xffffffff;

/** What a context's time is for, as far as colours tell it apart. */
type Family = "work" | "wait" | "sync" | "other";

/** The family of a label. */
function family(label: string): Family {
  if (label === "computation") return "work";
  if (label === "collective_synchronisation") return "sync";
  if (label.startsWith("wait") || label === "communication" || label === "message") return "wait";
  return "other";
}

/** All contexts of a run. A context is an index; a parent comes before its children. */
export class Contexts {
  readonly length: number;
  readonly frames: Frame[];
  /** Lower case names, for the search. */
  private readonly lowered: string[];
  private readonly columns: Columns;
  private readonly parents: Uint32Array;
  private readonly frameOf: Uint32Array;
  private readonly labelOf: Uint8Array;
  /** Children of a context: `children[starts[c] .. starts[c + 1]]`. */
  private readonly starts: Uint32Array;
  private readonly children: Uint32Array;
  readonly roots: number[] = [];
  /** Whether no caller of the context has the same frame: recursion counts such contexts once. */
  readonly outermost: Uint8Array;

  constructor(columns: Columns, frames: Frame[]) {
    this.columns = columns;
    this.frames = frames;
    this.length = columns.nodes;
    this.lowered = frames.map((frame) => {
      return `${frame.function} ${frame.file ?? ""} ${frame.module}`.toLowerCase();
    });
    this.parents = columns.numbers("parent") as Uint32Array;
    this.frameOf = columns.numbers("frame") as Uint32Array;
    this.labelOf = columns.numbers("label") as Uint8Array;
    this.starts = new Uint32Array(this.length + 1);
    for (const parent of this.parents) {
      if (parent !== NO_PARENT) this.starts[parent + 1]! += 1;
    }
    for (let node = 0; node < this.length; node += 1) {
      this.starts[node + 1]! += this.starts[node]!;
    }
    const next = this.starts.slice();
    this.children = new Uint32Array(this.length);
    for (let node = 0; node < this.length; node += 1) {
      const parent = this.parents[node]!;
      if (parent === NO_PARENT) this.roots.push(node);
      else this.children[next[parent]!++] = node;
    }
    this.outermost = this.findOutermost();
  }

  /** Walks the tree once and keeps how many callers of each frame are open. */
  private findOutermost(): Uint8Array {
    const outermost = new Uint8Array(this.length);
    const open = new Uint32Array(this.frames.length);
    const stack = this.roots.map((root) => ({ node: root, enters: true }));
    while (stack.length > 0) {
      const { node, enters } = stack.pop()!;
      const frame = this.frameOf[node]!;
      if (!enters) {
        open[frame]! -= 1;
        continue;
      }
      outermost[node] = open[frame] === 0 ? 1 : 0;
      open[frame]! += 1;
      stack.push({ node, enters: false });
      for (const child of this.below(node)) stack.push({ node: child, enters: true });
    }
    return outermost;
  }

  parent(node: number): number | null {
    const parent = this.parents[node];
    return parent === undefined || parent === NO_PARENT ? null : parent;
  }

  below(node: number): Uint32Array {
    return this.children.subarray(this.starts[node], this.starts[node + 1]);
  }

  frameIndex(node: number): number {
    return this.frameOf[node]!;
  }

  frame(node: number): Frame {
    return this.frames[this.frameOf[node]!]!;
  }

  label(node: number): string {
    return this.columns.labels[this.labelOf[node]!] ?? "computation";
  }

  family(node: number): Family {
    return family(this.label(node));
  }

  labelWords(node: number): string {
    return words(this.label(node));
  }

  has(node: number): boolean {
    return Number.isInteger(node) && node >= 0 && node < this.length;
  }

  /** The contexts from the outermost one to `node`. */
  path(node: number): number[] {
    const path: number[] = [];
    for (let at: number | null = node; at !== null; at = this.parent(at)) path.push(at);
    return path.reverse();
  }

  /** The frames from the outermost one to that of `node`. */
  framesTo(node: number): Frame[] {
    return this.path(node).map((at) => this.frame(at));
  }

  /** The frames on the path to `node`, as a text: contexts of different threads may have the same. */
  frameKey(node: number): string {
    return this.path(node).map((at) => this.frameOf[at]).join();
  }

  /** Whether `node` is `above` or lies below it. */
  isWithin(node: number, above: number): boolean {
    let at: number | null = node;
    while (at !== null && at > above) at = this.parent(at);
    return at === above;
  }

  /** A number of a context; `null` where that is not known. */
  value(name: string, node: number): number | null {
    const value = this.columns.numbers(name)[node];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  column(name: string): ReturnType<Columns["numbers"]> {
    return this.columns.numbers(name);
  }

  /** Names of the counters of perf events. */
  counters(): string[] {
    const prefix = "counters.";
    const names = this.columns.names.filter((name) => name.startsWith(prefix));
    return names.map((name) => name.slice(prefix.length));
  }

  isCounted(node: number): boolean {
    return this.columns.numbers("calls_exact")[node] === 1;
  }

  /** The frames whose name, file or module holds a text. */
  matching(text: string): Uint8Array {
    const wanted = text.toLowerCase();
    return Uint8Array.from(this.lowered, (name) => (name.includes(wanted) ? 1 : 0));
  }

  /** The child in which most of the time is, as long as that is at least half of its parent's. */
  hotPath(from: number | null, column: string): number | null {
    const values = this.column(column);
    const most = (nodes: Iterable<number>): number | null => {
      let best: number | null = null;
      for (const node of nodes) {
        if (best === null || values[node]! > values[best]!) best = node;
      }
      return best;
    };
    let at = from ?? most(this.roots);
    while (at !== null) {
      const next: number | null = most(this.below(at));
      if (next === null || !(values[next]! >= values[at]! / 2)) break;
      at = next;
    }
    return at;
  }
}
