/** Rulers of the timeline: phases above its cells, iterations below them. */

import { colour } from "./dom";
import { endOf } from "./format";
import type { Rulings } from "./iterations";
import type { Phase, When } from "./summary";

/** Least distance of rulings in pixels: closer ones would hide the cells. */
const MIN_RULING = 5;
/** Width that the number of an iteration takes, in pixels. */
const NUMBER_WIDTH = 34;

/** Where rulers are drawn: beside the cells, which lie between `left` and `width`. */
export interface Ruler {
  context: CanvasRenderingContext2D;
  left: number;
  width: number;
  /** Top and bottom of the cells. */
  top: number;
  bottom: number;
  /** Where a time is. */
  x: (time: number) => number;
}

/** Rules in where phases begin for the first time. */
export function drawPhases({ context, left, width, bottom, x }: Ruler, all: Phase[]): void {
  const phases = [...all].sort((a, b) => a.begin_s - b.begin_s);
  let labelled = left;
  context.textAlign = "left";
  phases.forEach((phase, index) => {
    const at = Math.max(x(phase.begin_s), left);
    const next = phases[index + 1];
    const behind = next ? Math.min(x(next.begin_s), width) : width;
    if (behind <= left || at >= width) return;
    if (at > left && behind - at >= 2) {
      context.fillStyle = colour("--text");
      context.globalAlpha = 0.55;
      context.fillRect(Math.round(at), 0, 1, bottom + 4);
      context.globalAlpha = 1;
    }
    const end = phase.ends_in ? ` to ${endOf(phase.ends_in)}` : "";
    const text = [`phase ${phase.id}${end}`, `phase ${phase.id}`, String(phase.id)]
      .find((text) => context.measureText(text).width + 6 < behind - Math.max(at, labelled));
    if (!text) return;
    context.fillStyle = colour("--quiet");
    context.fillText(text, at + 3, 12);
    labelled = at + context.measureText(text).width + 6;
  });
}

/** Marks when the highlighted loss happens. */
export function drawWhen({ context, left, width, top, x }: Ruler, when: When): void {
  const [from, to] = [Math.max(x(when.from_s), left), Math.min(x(when.to_s), width)];
  context.fillStyle = colour("--symptom");
  if (to > from) context.fillRect(from, top - 3, to - from, 3);
}

/** Rules in the iterations of a loop, where they are wide enough to be seen, over a strip. */
export function drawIterations(
  { context, left, width, top, bottom, x }: Ruler,
  { times, numbers, isNumbered: named }: Rulings,
  strip: number,
): void {
  const at = times.map(x);
  const wide = (at[at.length - 1]! - at[0]!) / (at.length - 1);
  context.fillStyle = colour("--quiet");
  context.textAlign = "left";
  if (wide < MIN_RULING) {
    const from = Math.max(at[0]!, left);
    const to = Math.min(at[at.length - 1]!, width);
    if (to <= from) return;
    context.fillRect(from, bottom + 3, to - from, 2);
    context.fillText("zoom in to see single iterations", from + 4, bottom + 14);
    return;
  }
  const every = Math.max(Math.ceil(NUMBER_WIDTH / wide), 1);
  let labelled = left;
  at.forEach((x, index) => {
    if (x < left || x > width) return;
    context.fillStyle = colour("--text");
    context.globalAlpha = 0.3;
    context.fillRect(Math.round(x), top, 1, bottom - top);
    context.globalAlpha = 1;
    context.fillStyle = colour("--quiet");
    const isNumbered = named && index % every === 0 && index < at.length - 1 && x >= labelled &&
      x + NUMBER_WIDTH < width;
    context.fillRect(Math.round(x), bottom, 1, isNumbered ? strip - 2 : 4);
    if (!isNumbered) return;
    context.fillText(String(numbers[index]), x + 3, bottom + 12);
    labelled = x + NUMBER_WIDTH - 8;
  });
}
