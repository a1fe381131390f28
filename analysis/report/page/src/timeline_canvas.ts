/** The cells of the timeline on a canvas, with zoom, and rulers of phases and ranks. */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { colour, fitted, h } from "./dom";
import { holds, seconds } from "./format";
import type { Summary } from "./summary";

export type Order = "cluster" | "rank" | "node";
export const ORDERS: [Order, string][] = [
  ["cluster", "By cluster"], ["rank", "By rank"], ["node", "By node"],
];

export interface Cell {
  ranks: string;
  from: number;
  to: number;
  node: number | null;
  /** Fraction of the cell's time spent waiting. */
  wait: number;
}

interface Events {
  hover: (cell: Cell | null) => void;
  span: (from: number, to: number) => void;
  choose: (node: number) => void;
}

export interface Shown {
  order: Order;
  byWait: boolean;
  /** Contexts that are highlighted with all below them. */
  named: number[];
  from: number;
  to: number;
}

/** Rows that stand together: a cluster, a node, or all. */
interface Band {
  name: string;
  rows: number[];
  top: number;
  height: number;
}

const HEIGHT = 460;
const LEFT = 92;
const AXIS = 26;

type Rgb = [number, number, number];

export class TimelineCanvas {
  readonly element: HTMLElement;
  private readonly summary: Summary;
  private readonly contexts: Contexts;
  private readonly data: TimelineData;
  private readonly events: Events;
  private readonly canvas: HTMLCanvasElement;
  private shown: Shown;
  private bands: Band[] = [];
  private drag: { from: number; to: number } | null = null;

  constructor(summary: Summary, contexts: Contexts, data: TimelineData, events: Events) {
    this.summary = summary;
    this.contexts = contexts;
    this.data = data;
    this.events = events;
    this.shown = { order: "rank", byWait: false, named: [], from: data.begin_s, to: data.end_s };
    this.canvas = h("canvas", {
      role: "img", tabindex: "0", class: "timeline",
      "aria-label": "Timeline of the ranks. Keys: + and - zoom, arrows move, 0 shows the whole run",
    });
    this.canvas.style.height = `${HEIGHT}px`;
    this.element = h("figure", {}, this.canvas);
    this.listen();
  }

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        this.drag.to = event.offsetX;
        this.draw();
      }
      this.events.hover(this.cell(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { from: event.offsetX, to: event.offsetX };
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      if (Math.abs(drag.to - drag.from) > 5) {
        const [a, b] = [this.time(drag.from), this.time(drag.to)];
        this.setSpan(Math.min(a, b), Math.max(a, b));
      } else {
        const cell = this.cell(event.offsetX, event.offsetY);
        if (cell?.node !== null && cell?.node !== undefined) this.events.choose(cell.node);
      }
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) this.move(event.deltaY / 800);
      else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act: Record<string, () => void> = {
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
        "0": () => this.whole(), ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1),
      };
      if (!act[event.key]) return;
      act[event.key]!();
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** Zooms by a factor of the shown span, about a time or the middle. */
  zoom(factor: number, about?: number): void {
    const { from, to } = this.shown;
    const at = about ?? (from + to) / 2;
    this.setSpan(at - (at - from) * factor, at + (to - at) * factor);
  }

  /** Moves by a fraction of the shown span. */
  move(fraction: number): void {
    const { from, to } = this.shown;
    const { begin_s, end_s } = this.data;
    const by = Math.min(Math.max((to - from) * fraction, begin_s - from), end_s - to);
    this.setSpan(from + by, to + by);
  }

  whole(): void {
    this.setSpan(this.data.begin_s, this.data.end_s);
  }

  private setSpan(from: number, to: number): void {
    const { begin_s, end_s, columns } = this.data;
    const least = ((end_s - begin_s) / columns) * 2;
    const begin = Math.max(Math.min(from, end_s - least), begin_s);
    this.events.span(begin, Math.min(Math.max(to, begin + least), end_s));
  }

  show(shown: Shown): void {
    this.shown = { ...shown, to: Math.max(shown.to, shown.from + 1e-9) };
    this.layOut();
    this.draw();
  }

  /** Puts the rows into bands; a cluster is log2(size + 1) high. */
  private layOut(): void {
    const { summary, data } = this;
    const all = data.rows.map((_, row) => row);
    const sets = this.shown.order === "cluster"
      ? summary.clusters.map(({ ranks, representative }) => ({
        name: `rank ${representative}'s`, ranks,
      }))
      : this.shown.order === "node"
        ? summary.run.nodes.map(({ host, ranks }) => ({ name: host, ranks })) : [];
    const left = new Set(all);
    this.bands = [];
    for (const { name, ranks } of sets) {
      const rows = all.filter((row) => {
        return left.has(row) && holds(ranks, Number.parseInt(data.rows[row]!.ranks, 10));
      });
      rows.forEach((row) => left.delete(row));
      if (rows.length > 0) this.bands.push({ name, rows, top: 0, height: 0 });
    }
    if (left.size > 0) this.bands.push({ name: "", rows: [...left], top: 0, height: 0 });
    const isLogarithmic = this.shown.order === "cluster" && sets.length > 0;
    const weight = (band: Band) => {
      return isLogarithmic ? Math.log2(band.rows.length + 1) : band.rows.length;
    };
    const gap = this.bands.length > 1 && this.bands.length < 60 ? 3 : 0;
    const room = HEIGHT - AXIS - gap * (this.bands.length - 1);
    const sum = this.bands.reduce((sum, band) => sum + weight(band), 0);
    let top = 0;
    for (const band of this.bands) {
      band.top = top;
      band.height = (room * weight(band)) / sum;
      top += band.height + gap;
    }
  }

  private time(x: number): number {
    const { width } = this.canvas.getBoundingClientRect();
    const { from, to } = this.shown;
    return from + ((x - LEFT) / Math.max(width - LEFT, 1)) * (to - from);
  }

  private rowAt(y: number): number | null {
    for (const band of this.bands) {
      if (y < band.top || y >= band.top + band.height) continue;
      return band.rows[Math.floor(((y - band.top) / band.height) * band.rows.length)] ?? null;
    }
    return null;
  }

  private cell(x: number, y: number): Cell | null {
    const { data } = this;
    const row = this.rowAt(y);
    if (row === null || x < LEFT) return null;
    const wide = (data.end_s - data.begin_s) / data.columns;
    const column = Math.floor((this.time(x) - data.begin_s) / wide);
    if (column < 0 || column >= data.columns) return null;
    const index = row * data.columns + column;
    const place = data.cells[index] ?? -1;
    const node = place < 0 ? null : (data.nodes[place] ?? null);
    const from = data.begin_s + column * wide;
    return {
      ranks: data.rows[row]!.ranks, from, to: from + wide,
      node: node !== null && this.contexts.has(node) ? node : null,
      wait: (data.wait[index] ?? 0) / 255,
    };
  }

  /** The colour of each entry of `nodes`. */
  private colours(): { fills: Rgb[]; nothing: Rgb } {
    const { contexts, data, shown } = this;
    const nothing = rgb(colour("--nothing"));
    const counts = { work: 0, wait: 0, sync: 0, other: 0 };
    const fills = data.nodes.map((node) => {
      if (!contexts.has(node)) return nothing;
      const family = contexts.family(node);
      const shade = counts[family] % 5;
      counts[family] += 1;
      const fill = rgb(colour(`--${family}-${shade}`));
      const isDim = shown.named.length > 0 &&
        !shown.named.some((named) => contexts.isWithin(node, named));
      return isDim ? mixed(fill, nothing, 0.78) : fill;
    });
    return { fills, nothing };
  }

  private draw(): void {
    const surface = fitted(this.canvas);
    if (!surface) return;
    const { context, width } = surface;
    const scale = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round((width - LEFT) * scale), Math.round((HEIGHT - AXIS) * scale)];
    if (wide <= 0) return;
    const image = context.createImageData(wide, high);
    this.paint(image, scale);
    context.putImageData(image, Math.round(LEFT * scale), 0);
    this.labels(context, width);
    if (this.drag) {
      context.fillStyle = colour("--text");
      context.globalAlpha = 0.2;
      context.fillRect(this.drag.from, 0, this.drag.to - this.drag.from, HEIGHT - AXIS);
      context.globalAlpha = 1;
    }
  }

  /** Fills the image: each pixel has the colour of its cell. */
  private paint(image: ImageData, scale: number): void {
    const { data, shown } = this;
    const { fills, nothing } = this.colours();
    const [work, wait] = [rgb(colour("--work")), rgb(colour("--wait"))];
    const { columns } = data;
    const pixels = new Uint32Array(image.data.buffer);
    const packed = ([r, g, b]: Rgb) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
    const palette = Uint32Array.from(fills, packed);
    const none = packed(nothing);
    const byWait = Uint32Array.from({ length: 256 }, (_, part) => packed(mixed(work, wait, part / 255)));
    const columnOf = new Int32Array(image.width);
    for (let x = 0; x < image.width; x += 1) {
      const time = shown.from + ((x + 0.5) / image.width) * (shown.to - shown.from);
      const at = Math.floor(((time - data.begin_s) / (data.end_s - data.begin_s)) * columns);
      columnOf[x] = at >= 0 && at < columns ? at : -1;
    }
    let last = -1;
    for (let y = 0; y < image.height; y += 1) {
      const row = this.rowAt((y + 0.5) / scale);
      const line = y * image.width;
      if (row === null) continue;
      if (row === last) {
        pixels.copyWithin(line, line - image.width, line);
        continue;
      }
      last = row;
      const begin = row * columns;
      for (let x = 0; x < image.width; x += 1) {
        const column = columnOf[x]!;
        const place = column < 0 ? -1 : data.cells[begin + column]!;
        if (place < 0) pixels[line + x] = none;
        else if (shown.byWait) pixels[line + x] = byWait[data.wait[begin + column]!] ?? none;
        else pixels[line + x] = palette[place] ?? none;
      }
    }
  }

  private labels(context: CanvasRenderingContext2D, width: number): void {
    const { shown, summary, data } = this;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colour("--quiet");
    context.textAlign = "right";
    let below = -Infinity;
    for (const band of this.bands) {
      const middle = band.top + band.height / 2 + 4;
      if (middle < below + 13) continue;
      below = middle;
      const first = data.rows[band.rows[0]!]!.ranks;
      const text = band.name || (band.rows.length > 1 ? "ranks" : `rank ${first}`);
      context.fillText(text.slice(0, 14), LEFT - 6, middle);
    }
    this.rowNumbers(context);
    const x = (time: number) => {
      return LEFT + ((time - shown.from) / (shown.to - shown.from)) * (width - LEFT);
    };
    context.textAlign = "center";
    const ticks = Math.max(Math.floor((width - LEFT) / 120), 2);
    for (let tick = 0; tick <= ticks; tick += 1) {
      const time = shown.from + ((shown.to - shown.from) * tick) / ticks;
      context.fillText(seconds(time), Math.min(Math.max(x(time), LEFT + 22), width - 26), HEIGHT - 6);
    }
    // Where phases begin for the first time.
    context.fillStyle = colour("--text");
    if (summary.phases.length <= 64) {
      for (const phase of summary.phases) {
        const at = x(phase.begin_s);
        if (at <= LEFT || at >= width) continue;
        context.globalAlpha = 0.5;
        context.fillRect(Math.round(at), 0, 1, HEIGHT - AXIS + 5);
        context.globalAlpha = 1;
      }
    }
  }

  /** Numbers of single rows, where these are high enough. */
  private rowNumbers(context: CanvasRenderingContext2D): void {
    if (this.bands.length > 1) return;
    const band = this.bands[0];
    if (!band || band.rows.length < 2) return;
    const high = band.height / band.rows.length;
    const step = Math.max(Math.ceil(16 / high), 1);
    context.clearRect(0, 0, LEFT - 1, HEIGHT - AXIS);
    for (let index = 0; index < band.rows.length; index += step) {
      const { ranks } = this.data.rows[band.rows[index]!]!;
      context.fillText(`rank ${ranks}`.slice(0, 14), LEFT - 6, band.top + (index + 0.5) * high + 4);
    }
  }
}

function rgb(text: string): Rgb {
  const digits = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(text);
  if (!digits) return [128, 128, 128];
  return [1, 2, 3].map((at) => Number.parseInt(digits[at]!, 16)) as Rgb;
}

function mixed(a: Rgb, b: Rgb, part: number): Rgb {
  return a.map((value, at) => Math.round(value + (b[at]! - value) * part)) as Rgb;
}
