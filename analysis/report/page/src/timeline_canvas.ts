/** The cells of the timeline on a canvas, with zoom, and rulers of phases and ranks. */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { colour, fitted, h } from "./dom";
import { endOf, holds, roundUp, seconds } from "./format";
import type { Rulings } from "./iterations";
import type { Summary, When } from "./summary";

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
  /** Iterations that are ruled in. */
  rulings: Rulings | null;
  /** When the highlighted loss happens. */
  when: When | null;
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

const HEIGHT = 500;
const LEFT = 92;
/** Height of the strip above the cells, with the phases. */
const TOP = 18;
/** Height of the strip below the cells, with the iterations. */
const STRIP = 16;
/** Height of all below the cells: the iterations, then the times. */
const BELOW = STRIP + 26;
/** Least distance of rulings in pixels: closer ones would hide the cells. */
const MIN_RULING = 5;
/** Width that the number of an iteration takes, in pixels. */
const NUMBER_WIDTH = 34;

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
  /** Names of the colours of the entries of `nodes`. */
  private readonly names: (string | null)[];
  private drag: { from: number; to: number } | null = null;

  constructor(summary: Summary, contexts: Contexts, data: TimelineData, events: Events) {
    this.summary = summary;
    this.contexts = contexts;
    this.data = data;
    this.events = events;
    this.shown = {
      order: "rank", byWait: false, named: [], rulings: null, when: null,
      from: data.begin_s, to: data.end_s,
    };
    this.canvas = h("canvas", {
      role: "img", tabindex: "0", class: "timeline",
      "aria-label": "Timeline of the ranks. Keys: + and - zoom, arrows move, 0 shows the whole run",
    });
    this.canvas.style.height = `${HEIGHT}px`;
    this.element = h("figure", {}, this.canvas);
    this.names = this.named();
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
      ? summary.clusters.map(({ ranks, representative, size }) => ({
        name: `${size === 1 ? "" : "like "}rank ${representative}`, ranks,
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
    const room = HEIGHT - TOP - BELOW - gap * (this.bands.length - 1);
    const sum = this.bands.reduce((sum, band) => sum + weight(band), 0);
    let top = TOP;
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

  /** The part of the known cells of a span that each entry of `nodes` has, 0 to 1. */
  private parts(from: number, to: number): Float64Array {
    const { data } = this;
    const parts = new Float64Array(data.nodes.length);
    const wide = (data.end_s - data.begin_s) / data.columns;
    const first = Math.max(Math.floor((from - data.begin_s) / wide), 0);
    const behind = Math.min(Math.ceil((to - data.begin_s) / wide), data.columns);
    let all = 0;
    for (let row = 0; row < data.rows.length; row += 1) {
      for (let column = first; column < behind; column += 1) {
        const place = data.cells[row * data.columns + column]!;
        if (place < 0) continue;
        parts[place]! += 1;
        all += 1;
      }
    }
    return parts.map((cells) => cells / Math.max(all, 1));
  }

  /**
   * The name of the colour of each entry of `nodes`: its family's next shade, beginning with those
   * that have most cells.
   */
  private named(): (string | null)[] {
    const { data, contexts } = this;
    const counts = { work: 0, wait: 0, sync: 0, other: 0 };
    const parts = this.parts(data.begin_s, data.end_s);
    const names: (string | null)[] = data.nodes.map(() => null);
    const order = [...data.nodes.keys()].sort((a, b) => parts[b]! - parts[a]!);
    for (const index of order) {
      const node = data.nodes[index]!;
      if (!contexts.has(node)) continue;
      const family = contexts.family(node);
      names[index] = `--${family}-${counts[family] % 5}`;
      counts[family] += 1;
    }
    return names;
  }

  /** The call paths that take most of the cells in view, with their colours. */
  legend(most: number): { node: number; fill: string; part: number }[] {
    const parts = this.parts(this.shown.from, this.shown.to);
    const fills = this.names;
    return this.data.nodes
      .map((node, index) => ({ node, fill: fills[index]!, part: parts[index]! }))
      .filter(({ fill, part }) => fill !== null && part > 0)
      .sort((a, b) => b.part - a.part)
      .slice(0, most);
  }

  /** The colour of each entry of `nodes`. */
  private colours(): { fills: Rgb[]; nothing: Rgb } {
    const { contexts, data, shown } = this;
    const nothing = rgb(colour("--nothing"));
    const { names } = this;
    const fills = data.nodes.map((node, index) => {
      const name = names[index];
      if (!name) return nothing;
      const fill = rgb(colour(name));
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
    const [wide, high] = [Math.round((width - LEFT) * scale), Math.round((HEIGHT - TOP - BELOW) * scale)];
    if (wide <= 0) return;
    const image = context.createImageData(wide, high);
    this.paint(image, scale);
    context.putImageData(image, Math.round(LEFT * scale), Math.round(TOP * scale));
    this.labels(context, width);
    this.phases(context, width);
    this.iterations(context, width);
    if (this.drag) {
      context.fillStyle = colour("--text");
      context.globalAlpha = 0.2;
      context.fillRect(this.drag.from, TOP, this.drag.to - this.drag.from, HEIGHT - TOP - BELOW);
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
      const row = this.rowAt(TOP + (y + 0.5) / scale);
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
    const { shown, data } = this;
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
    context.textAlign = "center";
    const step = roundUp((shown.to - shown.from) / Math.max((width - LEFT) / 110, 2));
    for (let time = Math.ceil(shown.from / step) * step; time <= shown.to; time += step) {
      const at = Math.min(Math.max(this.x(time, width), LEFT + 22), width - 26);
      context.fillText(seconds(time), at, HEIGHT - 6);
    }
  }

  /** Where a time is on a canvas of this width. */
  private x(time: number, width: number): number {
    const { from, to } = this.shown;
    return LEFT + ((time - from) / (to - from)) * (width - LEFT);
  }

  /** Rules in where phases begin for the first time, and when the highlighted loss happens. */
  private phases(context: CanvasRenderingContext2D, width: number): void {
    const { shown } = this;
    const phases = [...this.summary.phases].sort((a, b) => a.begin_s - b.begin_s);
    let labelled = LEFT;
    context.textAlign = "left";
    phases.forEach((phase, index) => {
      const at = Math.max(this.x(phase.begin_s, width), LEFT);
      const next = phases[index + 1];
      const behind = next ? Math.min(this.x(next.begin_s, width), width) : width;
      if (behind <= LEFT || at >= width) return;
      if (at > LEFT && behind - at >= 2) {
        context.fillStyle = colour("--text");
        context.globalAlpha = 0.55;
        context.fillRect(Math.round(at), 0, 1, HEIGHT - BELOW + 4);
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
    if (!shown.when) return;
    const from = Math.max(this.x(shown.when.from_s, width), LEFT);
    const to = Math.min(this.x(shown.when.to_s, width), width);
    context.fillStyle = colour("--symptom");
    if (to > from) context.fillRect(from, TOP - 3, to - from, 3);
  }

  /** Rules in the iterations of the chosen loop, where they are wide enough to be seen. */
  private iterations(context: CanvasRenderingContext2D, width: number): void {
    const { rulings } = this.shown;
    if (!rulings) return;
    const { times, numbers } = rulings;
    const at = times.map((time) => this.x(time, width));
    const wide = (at[at.length - 1]! - at[0]!) / (at.length - 1);
    const top = HEIGHT - BELOW;
    context.fillStyle = colour("--quiet");
    context.textAlign = "left";
    if (wide < MIN_RULING) {
      const from = Math.max(at[0]!, LEFT);
      const to = Math.min(at[at.length - 1]!, width);
      if (to <= from) return;
      context.fillRect(from, top + 3, to - from, 2);
      context.fillText("zoom in to see single iterations", from + 4, top + 14);
      return;
    }
    const every = Math.max(Math.ceil(NUMBER_WIDTH / wide), 1);
    let labelled = LEFT;
    at.forEach((x, index) => {
      if (x < LEFT || x > width) return;
      context.fillStyle = colour("--text");
      context.globalAlpha = 0.3;
      context.fillRect(Math.round(x), TOP, 1, top - TOP);
      context.globalAlpha = 1;
      context.fillStyle = colour("--quiet");
      const isNumbered = index % every === 0 && index < at.length - 1 && x >= labelled &&
        x + NUMBER_WIDTH < width;
      context.fillRect(Math.round(x), top, 1, isNumbered ? STRIP - 2 : 4);
      if (!isNumbered) return;
      context.fillText(String(numbers[index]), x + 3, top + 12);
      labelled = x + NUMBER_WIDTH - 8;
    });
  }

  /** Numbers of single rows, where these are high enough. */
  private rowNumbers(context: CanvasRenderingContext2D): void {
    if (this.bands.length > 1) return;
    const band = this.bands[0];
    if (!band || band.rows.length < 2) return;
    const high = band.height / band.rows.length;
    const step = Math.max(Math.ceil(16 / high), 1);
    context.clearRect(0, TOP, LEFT - 1, HEIGHT - TOP - BELOW);
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
