/** The communication matrix: calls, bytes and waiting between pairs of ranks, or of clusters. */

import { type Child, colour, fitted, h } from "./dom";
import { bytes, count, numbersIn, seconds } from "./format";
import type { Job } from "./job";
import type { Matrix } from "./summary";

const KINDS = [
  ["bytes", "Bytes", bytes],
  ["calls", "Calls", count],
  ["wait_s", "Wait", seconds],
] as const;

/** The matrix, or a sentence where the run has none. */
export function matrixPanel(job: Job): Child {
  const matrix = job.summary.communication?.matrix;
  const kinds = KINDS.filter(([key]) => (matrix?.[key].length ?? 0) > 0);
  if (!matrix || kinds.length === 0) {
    return h("p", { class: "missing" }, "The run has no communication matrix.");
  }
  const chosen = kinds.find(([key]) => key === job.address.matrix) ?? kinds[0]!;
  const canvas = h("canvas", {
    class: "matrix", role: "img", tabindex: "0",
    "aria-label": `${chosen[1]} from each sender (row) to each receiver (column)`,
  });
  const tip = h("output", { class: "tip" });
  const cells = matrix[chosen[0]];
  requestAnimationFrame(() => draw(canvas, cells));
  canvas.addEventListener("pointermove", (event) => {
    const { width, height } = canvas.getBoundingClientRect();
    const row = Math.floor((event.offsetY / height) * cells.length);
    const column = Math.floor((event.offsetX / width) * cells.length);
    const value = cells[row]?.[column];
    tip.textContent = value === undefined ? "" :
      `${name(matrix, row)} to ${name(matrix, column)}: ${chosen[2](value)}`;
  });
  return h("div", {},
    h("div", { class: "controls" }, h("span", { class: "group" }, kinds.map(([key, title]) => {
      return h("button", {
        type: "button", "aria-pressed": String(key === chosen[0]),
        onclick: () => job.go({ matrix: key }),
      }, title);
    })), tip),
    canvas,
    h("p", { class: "aside" }, "From row to column; dark is most."));
}

function name({ ranks, clusters }: Matrix, index: number): string {
  const cluster = clusters?.[index];
  if (cluster !== undefined) return `ranks ${cluster}`;
  return `rank ${numbersIn(ranks ?? "", index + 1)[index] ?? index}`;
}

function draw(canvas: HTMLCanvasElement, cells: number[][]): void {
  const surface = fitted(canvas);
  if (!surface) return;
  const { context, width, height } = surface;
  const most = cells.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), 0);
  const [wide, high] = [width / cells.length, height / cells.length];
  context.fillStyle = colour("--panel");
  context.fillRect(0, 0, width, height);
  context.fillStyle = colour("--accent");
  cells.forEach((row, y) => row.forEach((value, x) => {
    if (!(value > 0)) return;
    // The root shows small values beside large ones.
    context.globalAlpha = 0.08 + 0.92 * Math.sqrt(value / most);
    context.fillRect(x * wide, y * high, Math.max(wide - 0.5, 0.5), Math.max(high - 0.5, 0.5));
  }));
  context.globalAlpha = 1;
}
