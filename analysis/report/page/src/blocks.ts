/** The data blocks of the page, decoded when they are needed. */

import type { Comparison } from "./comparison";
import type { Frame, Summary } from "./summary";

/** Why data are missing, as sentences. */
export interface Missing {
  ranks: string | null;
  timeline: string | null;
}

/** Sentences of the text report. */
export interface Sentences {
  /** The cost of the measurement. */
  cost: string;
  /** One sentence per bicluster. */
  biclusters: string[];
  /** `null` where no ranks were sampled. */
  population: string | null;
}

/** The cells of the timeline: `plimsoll-timeline/1`. */
export interface TimelineData {
  begin_s: number;
  end_s: number;
  columns: number;
  rows: { ranks: string }[];
  /** Contexts, as indices of the tree. */
  nodes: number[];
  /** For each row, for each column: an index into `nodes`, or -1. */
  cells: number[];
  /** For each row, for each column: 0 to 255, the fraction of the time spent waiting. */
  wait: number[];
  /** Threads other than the communicating ones. */
  threads?: ThreadGrid;
}

/** Cells of threads, in the form of those of the ranks; they begin at the same time. */
export interface ThreadGrid {
  end_s: number;
  columns: number;
  rows: { rank: number; kind: "slowest" | "fastest" | "thread"; number: number }[];
  cells: number[];
  wait: number[];
  /** Number of threads that are left out. */
  unlisted: number;
}

/** Times of single ranks in some contexts. */
export interface RankTimes {
  /** Rank list. */
  ranks: string;
  /** Contexts, as indices of the tree. */
  nodes: number[];
  quantities: string[];
  /** Number of ranks. */
  count: number;
  /** Number of contexts that the file beside the summary holds. */
  of: number;
  /** The times of all ranks in the context at a place of `nodes`. */
  times(place: number, quantity: number): Float32Array;
}

/** Columns of numbers, one number for each context of the tree. */
export interface Columns {
  nodes: number;
  labels: string[];
  names: string[];
  numbers(name: string): Float32Array | Float64Array | Uint32Array | Uint8Array;
}

/** The inflated bytes of a block; `null` where the page has no such block. */
async function inflated(name: string): Promise<Uint8Array | null> {
  const element = document.getElementById(`data-${name}`);
  if (!element) return null;
  const bytes = fromBase64(element.textContent ?? "");
  const stream = new Blob([bytes as BlobPart]).stream();
  const inflater = stream.pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflater).arrayBuffer());
}

interface Base64Constructor {
  fromBase64?(text: string): Uint8Array;
}

function fromBase64(text: string): Uint8Array {
  const native = (Uint8Array as unknown as Base64Constructor).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

async function json<T>(name: string): Promise<T | null> {
  const bytes = await inflated(name);
  return bytes && (JSON.parse(new TextDecoder().decode(bytes)) as T);
}

export async function readSummary(): Promise<Summary> {
  const summary = await json<Summary>("summary");
  if (!summary) throw new Error("the page holds no summary");
  return summary;
}

/** Reads the comparison of the page of `plimsoll diff`. */
export async function readComparison(): Promise<Comparison> {
  const comparison = await json<Comparison>("comparison");
  if (!comparison) throw new Error("the page holds no comparison");
  return comparison;
}

export async function readFrames(): Promise<Frame[]> {
  return (await json<Frame[]>("frames")) ?? [];
}

export async function readMissing(): Promise<Missing> {
  return (await json<Missing>("page")) ?? { ranks: null, timeline: null };
}

export async function readSentences(): Promise<Sentences> {
  return (await json<Sentences>("sentences")) ?? { cost: "", biclusters: [], population: null };
}

/** Reads the timeline; `null` where the page has none. */
export async function readTimeline(): Promise<TimelineData | null> {
  const data = await json<TimelineData>("timeline");
  if (!data) return null;
  const isSound = ({ rows, columns, cells, wait, end_s }: TimelineData | ThreadGrid) => {
    const count = rows.length * columns;
    return cells.length === count && wait.length === count && end_s > data.begin_s;
  };
  if (!isSound(data) || (data.threads && !isSound(data.threads))) {
    throw new Error("the timeline contradicts itself");
  }
  return data;
}

/** The first line of a block as JSON, and what follows it. */
function headed(bytes: Uint8Array): [unknown, Uint8Array] {
  const end = bytes.indexOf(10);
  const header: unknown = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  return [header, bytes.subarray(end + 1)];
}

const WIDTHS = { u8: 1, u32: 4, f32: 4, u64: 8 } as const;

export async function readColumns(): Promise<Columns> {
  const bytes = await inflated("tree");
  if (!bytes) throw new Error("the page holds no tree");
  const [header, rest] = headed(bytes);
  const { nodes, labels, columns } = header as {
    nodes: number;
    labels: string[];
    columns: [string, keyof typeof WIDTHS][];
  };
  const places = new Map<string, { offset: number; kind: keyof typeof WIDTHS }>();
  let offset = 0;
  for (const [name, kind] of columns) {
    places.set(name, { offset, kind });
    offset += nodes * WIDTHS[kind];
  }
  if (offset !== rest.length) throw new Error("the tree ends early");
  const decoded = new Map<string, ReturnType<Columns["numbers"]>>();
  const numbers = (name: string) => {
    const known = decoded.get(name);
    if (known) return known;
    const column = places.get(name);
    if (!column) throw new Error(`the tree has no column ${name}`);
    const planes = rest.subarray(column.offset, column.offset + nodes * WIDTHS[column.kind]);
    const values = decode(planes, nodes, column.kind);
    decoded.set(name, values);
    return values;
  };
  return { nodes, labels, names: columns.map(([name]) => name), numbers };
}

function decode(planes: Uint8Array, nodes: number, kind: keyof typeof WIDTHS) {
  if (kind === "u8") return planes;
  const words = joined(planes, nodes);
  if (kind === "u32") return words;
  if (kind === "f32") return new Float32Array(words.buffer);
  const high = joined(planes.subarray(4 * nodes), nodes);
  return Float64Array.from(words, (low, index) => low + (high[index] ?? 0) * 2 ** 32);
}

/** Joins the first four planes of bytes to words. */
function joined(planes: Uint8Array, length: number): Uint32Array {
  const words = new Uint32Array(length);
  const bytes = new Uint8Array(words.buffer);
  for (let plane = 0; plane < 4; plane += 1) {
    const from = plane * length;
    for (let index = 0; index < length; index += 1) bytes[4 * index + plane] = planes[from + index]!;
  }
  return words;
}

/** Reads the times of single ranks; `null` where the page has none. */
export async function readRankTimes(): Promise<RankTimes | null> {
  const bytes = await inflated("ranks");
  if (!bytes) return null;
  const [header, rest] = headed(bytes);
  const about = header as Omit<RankTimes, "times">;
  const all = new Float32Array(joined(rest, rest.length / 4).buffer);
  return { ...about, times: (place, quantity) => {
    const row = place * about.quantities.length + quantity;
    return all.subarray(row * about.count, (row + 1) * about.count);
  } };
}

/** The files of a ZIP archive without compression, by name. */
function archived(bytes: Uint8Array): Map<string, Uint8Array> {
  const view = new DataView(bytes.buffer);
  const end = bytes.length - 22;
  if (end < 0 || view.getUint32(end, true) !== 0x06054b50) {
    throw new Error("this is no file of single ranks' times");
  }
  const files = new Map<string, Uint8Array>();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    const length = (offset: number) => view.getUint16(offset, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + length(at + 28)));
    const local = view.getUint32(at + 42, true);
    const begin = local + 30 + length(local + 26) + length(local + 28);
    files.set(name, bytes.subarray(begin, begin + view.getUint32(at + 20, true)));
    at += 46 + length(at + 28) + length(at + 30) + length(at + 32);
  }
  return files;
}

/** Reads the times of single ranks from the file beside the summary, which the user has chosen. */
export async function readRankFile(file: File): Promise<RankTimes> {
  const files = archived(new Uint8Array(await file.arrayBuffer()));
  const numbers = (name: string) => {
    const bytes = files.get(`${name}.npy`);
    if (!bytes) throw new Error(`it has no ${name}`);
    const header = 10 + bytes[8]! + 256 * bytes[9]!;
    return bytes.slice(header).buffer;
  };
  const [listed, nodes] = ["ranks", "nodes"].map((name) => [...new Uint32Array(numbers(name))]);
  const [ranks, count, width] = [listed!.join(), listed!.length, nodes!.length];
  const quantities = [...files.keys()].map((name) => name.slice(0, -".npy".length))
    .filter((name) => !["ranks", "nodes"].includes(name) && !name.startsWith("phase"));
  const values = quantities.map((name) => new Float32Array(numbers(name)));
  return { ranks, nodes: nodes!, quantities, count, of: width, times: (place, quantity) =>
    Float32Array.from({ length: count }, (_, rank) => values[quantity]![rank * width + place]!) };
}

/** Lines of one source file around contexts that matter. */
export interface SourceFile {
  file: string;
  /** Whether the file is newer than the program; `null` where that is not known. */
  newer: boolean | null;
  /** Consecutive lines, from the line with the number `first` on. */
  excerpts: { first: number; lines: string[] }[];
}

export async function readSources(): Promise<SourceFile[]> {
  return (await json<SourceFile[]>("sources")) ?? [];
}
