/** The colours of the call paths of a timeline. */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { colour } from "./dom";

export type Rgb = [number, number, number];

/** Number of shades of a family. */
const SHADES = 5;
/** How far the colour of a path that is not highlighted is moved to that of nothing. */
const DIMMED = 0.78;

/** How many cells each entry of `nodes` has. */
function counted(nodes: number[], cells: number[]): Uint32Array {
  const counts = new Uint32Array(nodes.length);
  for (const place of cells) if (place >= 0) counts[place]! += 1;
  return counts;
}

export class Palette {
  private readonly contexts: Contexts;
  private readonly nodes: number[];
  /** The frames of the paths of threads that are not among those of ranks, by entry of `nodes`. */
  private readonly keys: (string | null)[];
  /**
   * For each entry of `nodes` the first one that has its colour and its place in the legend: that of
   * a rank with the same frames for an entry that only threads have, else itself.
   */
  readonly firsts: number[];
  /**
   * The name of the colour of each entry of `nodes`: its family's next shade, beginning with those
   * that have most cells of ranks, then of threads.
   */
  readonly names: (string | null)[];

  constructor(contexts: Contexts, { nodes, cells, threads }: TimelineData) {
    this.contexts = contexts;
    this.nodes = nodes;
    const [ofRanks, ofThreads] = [counted(nodes, cells), counted(nodes, threads?.cells ?? [])];
    const order = [...nodes.keys()].filter((index) => contexts.has(nodes[index]!))
      .sort((a, b) => ofRanks[b]! - ofRanks[a]! || ofThreads[b]! - ofThreads[a]!);
    const counts = { work: 0, wait: 0, sync: 0, other: 0 };
    const known = new Map<string, number>();
    this.keys = nodes.map(() => null);
    this.firsts = [...nodes.keys()];
    this.names = nodes.map(() => null);
    for (const index of order) {
      const node = nodes[index]!;
      const [key, isOfThreads] = [contexts.frameKey(node), ofRanks[index] === 0 && ofThreads[index]! > 0];
      const first = known.get(key) ?? index;
      if (isOfThreads) this.keys[index] = key;
      if (isOfThreads && first !== index) {
        this.firsts[index] = first;
        this.names[index] = this.names[first]!;
        continue;
      }
      known.set(key, first);
      const family = contexts.family(node);
      this.names[index] = `--${family}-${counts[family] % SHADES}`;
      counts[family] += 1;
    }
  }

  /** The colour of each entry of `nodes`; those outside of the highlighted contexts are pale. */
  colours(highlit: number[]): { fills: Rgb[]; nothing: Rgb } {
    const { contexts, keys, names } = this;
    const nothing = rgb(colour("--nothing"));
    const paths = highlit.map((node) => contexts.frameKey(node));
    const isPale = (node: number, index: number) => {
      const key = keys[index];
      return highlit.length > 0 && !highlit.some((above) => contexts.isWithin(node, above)) &&
        !(key && paths.some((path) => key === path || key.startsWith(`${path},`)));
    };
    const fills = this.nodes.map((node, index) => {
      const name = names[index];
      if (!name) return nothing;
      const fill = rgb(colour(name));
      return isPale(node, index) ? mixed(fill, nothing, DIMMED) : fill;
    });
    return { fills, nothing };
  }
}

/** A colour of the theme as numbers. */
export function rgb(text: string): Rgb {
  const digits = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(text);
  if (!digits) return [128, 128, 128];
  return [1, 2, 3].map((at) => Number.parseInt(digits[at]!, 16)) as Rgb;
}

/** A colour between two. */
export function mixed(a: Rgb, b: Rgb, part: number): Rgb {
  return a.map((value, at) => Math.round(value + (b[at]! - value) * part)) as Rgb;
}
