/** Numbers, ranks, frames and paths in words: the wording of the text report. */

import type { Frame, Loss, NodeOfRun } from "./summary";

/** What stands where a value is not known. */
const UNKNOWN = "unknown";
const NBSP = "\u00a0";

/** A time with three or four digits: `120.4 s`, `3.2 ms`. */
export function seconds(time: number | null | undefined): string {
  if (time === null || time === undefined || !Number.isFinite(time)) return UNKNOWN;
  const size = Math.abs(time);
  if (size >= 1000) return `${time.toFixed(0)}${NBSP}s`;
  if (size >= 10) return `${time.toFixed(1)}${NBSP}s`;
  if (size >= 0.1) return `${time.toFixed(2)}${NBSP}s`;
  if (size >= 1e-4) return `${(time * 1e3).toFixed(1)}${NBSP}ms`;
  if (size === 0) return `0${NBSP}s`;
  if (size >= 1e-7) return `${(time * 1e6).toFixed(1)}${NBSP}us`;
  return `${Math.max(Math.round(time * 1e9), 1)}${NBSP}ns`;
}

/** A fraction in percent: `25 %`, `4.2 %`. */
export function percent(fraction: number | null | undefined): string {
  if (fraction === null || fraction === undefined || !Number.isFinite(fraction)) return UNKNOWN;
  const value = fraction * 100;
  return `${value.toFixed(Math.abs(value) < 9.95 ? 1 : 0)}${NBSP}%`;
}

/** The next round number: 1, 2 or 5 times a power of ten. */
export function roundUp(step: number): number {
  const ten = 10 ** Math.floor(Math.log10(step));
  return ten * (step <= ten ? 1 : step <= 2 * ten ? 2 : step <= 5 * ten ? 5 : 10);
}

/** A count, its digits in groups of three: `24,000`. */
export function count(number: number | null | undefined): string {
  if (number === null || number === undefined || !Number.isFinite(number)) return UNKNOWN;
  return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A noun with its number: `1 rank`, `2 ranks`. */
export function counted(number: number, noun: string, plural = `${noun}s`): string {
  return `${count(number)}${NBSP}${number === 1 ? noun : plural}`;
}

/** Bytes in the largest binary unit that leaves a number above one: `375.0 MiB`. */
export function bytes(number: number | null | undefined): string {
  if (number === null || number === undefined) return UNKNOWN;
  for (const [unit, shift] of [["GiB", 30], ["MiB", 20], ["KiB", 10]] as const) {
    if (number >= 2 ** shift) return `${(number / 2 ** shift).toFixed(1)}${NBSP}${unit}`;
  }
  return counted(number, "byte");
}

/** A number of calls; one that samples show is a lower bound. */
export function calls(number: number, exact: boolean): string {
  if (exact) return count(number);
  return number > 0 ? `\u2265${NBSP}${count(number)}` : UNKNOWN;
}

/** A key of the summary in words: `load_imbalance` is `load imbalance`. */
export function words(key: string): string {
  return key.replaceAll("_", " ").replace(/\bio\b/, "I/O");
}

/** A sentence's begin. */
export function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** One part of a rank list: every `step`-th number from `first` to `last`. */
interface Range {
  first: number;
  last: number;
  step: number;
}

/** The parts of a list such as `0-3,8,16-30:2`; parts that are no ranges are left out. */
function ranges(list: string): Range[] {
  const parts: Range[] = [];
  for (const part of list.split(",")) {
    const match = /^\s*(\d+)(?:-(\d+))?(?::(\d+))?\s*$/.exec(part);
    if (!match) continue;
    const first = Number(match[1]);
    const range = { first, last: Number(match[2] ?? first), step: Number(match[3] ?? 1) };
    if (range.step > 0 && range.last >= first) parts.push(range);
  }
  return parts;
}

/** How many numbers a list names. */
export function size(list: string): number {
  return ranges(list).reduce((sum, { first, last, step }) => {
    return sum + Math.floor((last - first) / step) + 1;
  }, 0);
}

/** The numbers of a list, up to `most` of them. */
export function numbersIn(list: string, most: number): number[] {
  const numbers: number[] = [];
  for (const { first, last, step } of ranges(list)) {
    for (let number = first; number <= last && numbers.length < most; number += step) {
      numbers.push(number);
    }
  }
  return numbers;
}

/** Whether a list names a number. */
export function holds(list: string, number: number): boolean {
  return ranges(list).some(({ first, last, step }) => {
    return number >= first && number <= last && (number - first) % step === 0;
  });
}

const MAX_LIST = 42;

/** Ranks as the subject of a sentence: `rank 0`, `ranks 0-3,8`, `all ranks`. */
export function ranks(list: string, of: number): string {
  const number = size(list);
  if (list === "") return "some ranks";
  if (number >= of && of > 1) return "all ranks";
  if (number === 1) return `rank${NBSP}${list}`;
  if (list.length <= MAX_LIST) return `ranks${NBSP}${list}`;
  const cut = list.slice(0, list.lastIndexOf(",", MAX_LIST));
  return `${count(number)} ranks (${cut},...)`;
}

/** The hosts of a job, the first few by name. */
export function hosts(nodes: NodeOfRun[]): string {
  const NAMED = 3;
  if (nodes.length === 0) return "an unknown node";
  if (nodes.length === 1) return nodes[0]!.host;
  const names = nodes.slice(0, NAMED).map((node) => node.host).join(", ");
  return `${counted(nodes.length, "node")} (${names}${nodes.length > NAMED ? ", ..." : ""})`;
}

/** The last part of a path of files. */
export function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** The file name and line of a frame, `stencil.c:12`; empty where that is not known. */
export function place({ file, line }: Pick<Frame, "file" | "line">): string {
  if (!file) return "";
  return line === null ? fileName(file) : `${fileName(file)}:${line}`;
}

/** A frame as part of a path: its name, a loop by its place, a call of MPI with its place. */
export function frameName(frame: Frame): string {
  const at = place(frame);
  switch (frame.kind) {
    case "loop": {
      if (at) return `loop at ${at}`;
      const offset = frame.offset ?? null;
      return offset === null
        ? `loop in ${frame.function}`
        : `loop at ${frame.function}+0x${offset.toString(16)}`;
    }
    case "line":
      return at || `line in ${frame.function}`;
    case "inlined":
      return `${frame.function} (inlined)`;
    case "mpi":
      return at ? `${frame.function} at ${at}` : frame.function;
    default:
      return frame.function;
  }
}

/** A path in one line; frames of one name that follow each other are named once. */
export function pathOf(path: Frame[]): string {
  const names = path.map(frameName);
  return names.filter((name, index) => name !== names[index - 1]).join(" > ");
}

/** The innermost frame of a path as the subject of a sentence. */
export function endOf(path: Frame[]): string {
  const last = path[path.length - 1];
  if (!last) return "the whole program";
  if (last.kind !== "loop") return frameName(last);
  return place(last) ? `the ${frameName(last)} in ${last.function}` : `the ${frameName(last)}`;
}

/** Whether two frames are the same place of the program. */
function isSame(one: Frame, other: Frame): boolean {
  return one.kind === other.kind && one.function === other.function && one.line === other.line &&
    one.file === other.file && one.module === other.module &&
    (one.offset ?? null) === (other.offset ?? null);
}

/** Number of outermost frames that paths have in common. */
export function common(paths: Frame[][]): number {
  const [first, ...others] = paths;
  if (!first) return 0;
  let depth = 0;
  while (depth < first.length && others.every((path) => {
    return path[depth] !== undefined && isSame(path[depth]!, first[depth]!);
  })) depth += 1;
  return depth;
}

/**
 * The function in which the path of a cause leaves that of its symptom, where it is not the path's
 * end: mostly the function that a user knows. `null` where there is none.
 */
export function branch(cause: Frame[], symptom: Frame[]): Frame | null {
  const frame = cause[common([cause, symptom])];
  return frame && frame.kind === "function" && frame !== cause[cause.length - 1] ? frame : null;
}

/** A loss in a few words, for a list to choose from. */
export function lossName(loss: Loss): string {
  const path = loss.causes[0]?.path ?? loss.symptom.path;
  const last = branch(path, loss.symptom.path) ?? path[path.length - 1];
  return last ? frameName(last) : words(loss.kind);
}
