/** Lines of source code around a context, where the page holds them. */

import type { SourceFile } from "./blocks";
import type { Contexts } from "./contexts";
import { type Child, h } from "./dom";
import { frameName, place } from "./format";
import type { Frame } from "./summary";

/** Lines shown before and behind a context's line. */
const AROUND = 4;
/** Levels of callees that are searched for a place where a function has none. */
const MAX_DEPTH = 3;

/** The lines of a context, or of the loop or inlined call in it that takes most of its time. */
export function sourceLines(sources: SourceFile[], contexts: Contexts, node: number): Child {
  const at = placed(contexts, node);
  if (at === null) return null;
  const frame = contexts.frame(at);
  const file = sources.find((source) => source.file === frame.file);
  const lines = file && around(file, frame.line ?? 0);
  if (!file || !lines) return null;
  return h("section", { class: "source" },
    h("h3", {}, at === node ? `Source, ${place(frame)}`
      : `Most of its time: ${frameName(frame)}, ${place(frame)}`),
    file.newer === true && h("p", { class: "doubt" },
      "The file is newer than the program: other lines may have run."),
    h("pre", { tabindex: "0", "aria-label": `Lines of ${place(frame)}` }, lines.map(([number, text]) => {
      const row = `${String(number).padStart(5)}  ${text}`;
      return number === frame.line ? h("mark", {}, row) : `${row}\n`;
    })));
}

function isPlaced(frame: Frame): boolean {
  return frame.file !== null && frame.line !== null;
}

/** The context itself where its line is known, else the longest context below it in its function. */
function placed(contexts: Contexts, node: number): number | null {
  if (isPlaced(contexts.frame(node))) return node;
  const times = contexts.column("inclusive.mean_s");
  let at = node;
  for (let depth = 0; depth < MAX_DEPTH; depth += 1) {
    const parts = [...contexts.below(at)].filter((below) => {
      const { kind } = contexts.frame(below);
      return kind === "loop" || kind === "inlined" || kind === "line";
    });
    const longest = parts.sort((a, b) => times[b]! - times[a]!)[0];
    if (longest === undefined) return null;
    if (isPlaced(contexts.frame(longest))) return longest;
    at = longest;
  }
  return null;
}

function around({ excerpts }: SourceFile, line: number): [number, string][] | null {
  const found = excerpts.find(({ first, lines }) => line >= first && line < first + lines.length);
  if (!found) return null;
  const numbered = found.lines.map((text, index): [number, string] => [found.first + index, text]);
  return numbered.filter(([number]) => Math.abs(number - line) <= AROUND);
}
