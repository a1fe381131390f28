/** The cells of the timeline on a canvas, with zoom, and the ranks and threads beside them. */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { colour, fitted, h } from "./dom";
import { roundUp, seconds } from "./format";
import type { Rulings } from "./iterations";
import type { Summary, When } from "./summary";
import { Disclosures, ThreadRows } from "./thread_rows";
import { type Lane, type Order, TimelineLayout } from "./timeline_layout";
import { Palette, type Rgb, mixed, rgb } from "./timeline_palette";
import { type Ruler, drawIterations, drawPhases, drawWhen } from "./timeline_rulers";

export interface Cell {
  ranks: string;
  /** The thread in words; `null` for the communicating one of the ranks. */
  thread: string | null;
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
  /** Expands or folds the threads of a row. */
  toggle: (row: number) => void;
}

interface Shown {
  order: Order;
  byWait: boolean;
  /** Contexts that are highlighted with all below them. */
  named: number[];
  /** Rows of ranks with expanded threads. */
  expanded: ReadonlySet<number>;
  /** Iterations that are ruled in. */
  rulings: Rulings | null;
  /** When the highlighted loss happens. */
  when: When | null;
  from: number;
  to: number;
}

/** Height of the canvas without threads. */
const HEIGHT = 500;
/** Width of the labels of ranks, and of those of threads with the buttons beside them. */
const [LEFT, LEFT_OF_THREADS] = [92, 128];
/** Width of the space between labels and cells, without and with buttons. */
const [GAP, GAP_OF_THREADS] = [6, 20];
/** Height of the strip above the cells, with the phases. */
const TOP = 18;
/** Height of the strip below the cells, with the iterations. */
const STRIP = 16;
/** Height of all below the cells: the iterations, then the times. */
const BELOW = STRIP + 26;
/** Cells of a kind of rows: those of ranks, or those of threads. */
interface Cells {
  columns: number;
  end_s: number;
  cells: number[];
  wait: number[];
}

export class TimelineCanvas {
  readonly element: HTMLElement;
  private readonly summary: Summary;
  private readonly contexts: Contexts;
  private readonly data: TimelineData;
  private readonly events: Events;
  private readonly canvas: HTMLCanvasElement;
  private shown: Shown;
  private layout: TimelineLayout;
  /** The threads; `null` without any. */
  readonly threads: ThreadRows | null;
  private readonly disclosures: Disclosures | null;
  private readonly left: number;
  private readonly palette: Palette;
  private drag: { from: number; to: number } | null = null;

  constructor(summary: Summary, contexts: Contexts, data: TimelineData, events: Events) {
    this.summary = summary;
    this.contexts = contexts;
    this.data = data;
    this.events = events;
    this.shown = {
      order: "rank", byWait: false, named: [], rulings: null, when: null, expanded: new Set(),
      from: data.begin_s, to: data.end_s,
    };
    this.threads = data.threads ? new ThreadRows(data, data.threads) : null;
    this.left = this.threads ? LEFT_OF_THREADS : LEFT;
    this.disclosures = this.threads && new Disclosures(this.threads, data.rows, events.toggle);
    this.layout = this.layOut();
    this.canvas = h("canvas", {
      role: "img", tabindex: "0", class: "timeline",
      "aria-label": "Timeline of the ranks. Keys: + and - zoom, arrows move, 0 shows the whole run",
    });
    this.element = h("figure", { class: "rows-over-time" }, this.canvas, this.disclosures?.element);
    this.palette = new Palette(contexts, data);
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
    this.layout = this.layOut();
    this.canvas.style.height = `${this.height()}px`;
    this.disclosures?.place(this.layout.ofRanks(), shown.expanded, this.left - GAP_OF_THREADS + 2);
    this.draw();
  }

  private layOut(): TimelineLayout {
    const { summary, data, threads, shown: { order, expanded } } = this;
    const room = HEIGHT - TOP - BELOW;
    return new TimelineLayout(summary, data, threads, { order, expanded, top: TOP, room });
  }

  /** Height of the canvas. */
  private height(): number {
    return TOP + this.layout.height + BELOW;
  }

  /** The cells that a row shows, with the index of its first one. */
  private cellsOf({ row, thread }: Lane): { source: Cells; first: number } {
    const { data } = this;
    const source = thread === null ? data : data.threads!;
    return { source, first: (thread ?? row) * source.columns };
  }

  private time(x: number): number {
    const { width } = this.canvas.getBoundingClientRect();
    const { from, to } = this.shown;
    return from + ((x - this.left) / Math.max(width - this.left, 1)) * (to - from);
  }

  private cell(x: number, y: number): Cell | null {
    const { data } = this;
    const lane = this.layout.at(y);
    if (!lane || x < this.left) return null;
    const { source, first } = this.cellsOf(lane);
    const wide = (source.end_s - data.begin_s) / source.columns;
    const column = Math.floor((this.time(x) - data.begin_s) / wide);
    if (column < 0 || column >= source.columns) return null;
    const place = source.cells[first + column] ?? -1;
    const node = place < 0 ? null : (data.nodes[place] ?? null);
    const from = data.begin_s + column * wide;
    return {
      ranks: data.rows[lane.row]!.ranks, from, to: from + wide,
      thread: lane.thread === null ? null : this.threads!.name(lane.thread),
      node: node !== null && this.contexts.has(node) ? node : null,
      wait: (source.wait[first + column] ?? 0) / 255,
    };
  }

  /** The part of the known cells of a span in some rows that each entry of `nodes` has, 0 to 1. */
  private parts(from: number, to: number, lanes: Lane[]): Float64Array {
    const { data } = this;
    const parts = new Float64Array(data.nodes.length);
    let all = 0;
    for (const lane of lanes) {
      const { source, first } = this.cellsOf(lane);
      const wide = (source.end_s - data.begin_s) / source.columns;
      const behind = Math.min(Math.ceil((to - data.begin_s) / wide), source.columns);
      for (let at = Math.max(Math.floor((from - data.begin_s) / wide), 0); at < behind; at += 1) {
        const place = source.cells[first + at]!;
        if (place < 0) continue;
        parts[place]! += wide;
        all += wide;
      }
    }
    return parts.map((time) => time / Math.max(all, 1e-12));
  }

  /** The call paths that take most of the cells in view, with their colours. */
  legend(most: number): { node: number; fill: string; part: number }[] {
    const { names, firsts } = this.palette;
    const parts = this.parts(this.shown.from, this.shown.to, this.layout.lanes);
    firsts.forEach((first, index) => {
      if (first !== index) [parts[first], parts[index]] = [parts[first]! + parts[index]!, 0];
    });
    return this.data.nodes
      .flatMap((node, index) => {
        const [fill, part] = [names[index], parts[index]!];
        return fill && part > 0 ? [{ node, fill, part }] : [];
      })
      .sort((a, b) => b.part - a.part)
      .slice(0, most);
  }

  private draw(): void {
    const surface = fitted(this.canvas);
    if (!surface) return;
    const { context, width } = surface;
    const scale = window.devicePixelRatio || 1;
    const { left, layout } = this;
    const [wide, high] = [Math.round((width - left) * scale), Math.round(layout.height * scale)];
    if (wide <= 0) return;
    const image = context.createImageData(wide, high);
    this.paint(image, scale);
    context.putImageData(image, Math.round(left * scale), Math.round(TOP * scale));
    this.labels(context, width);
    const bottom = TOP + layout.height;
    const ruler: Ruler = { context, left, width, top: TOP, bottom, x: (time) => this.x(time, width) };
    drawPhases(ruler, this.summary.phases);
    if (this.shown.when) drawWhen(ruler, this.shown.when);
    if (this.shown.rulings) drawIterations(ruler, this.shown.rulings, STRIP);
    if (this.drag) {
      context.fillStyle = colour("--text");
      context.globalAlpha = 0.2;
      context.fillRect(this.drag.from, TOP, this.drag.to - this.drag.from, layout.height);
      context.globalAlpha = 1;
    }
  }

  /** Fills the image: each pixel has the colour of its cell. */
  private paint(image: ImageData, scale: number): void {
    const { data, shown } = this;
    const { fills, nothing } = this.palette.colours(shown.named);
    const [work, wait] = [rgb(colour("--work")), rgb(colour("--wait"))];
    const pixels = new Uint32Array(image.data.buffer);
    const packed = ([r, g, b]: Rgb) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
    const palette = Uint32Array.from(fills, packed);
    const none = packed(nothing);
    const byWait = Uint32Array.from({ length: 256 }, (_, part) => packed(mixed(work, wait, part / 255)));
    const columnsOf = ({ columns, end_s }: Cells) => Int32Array.from({ length: image.width }, (_, x) => {
      const time = shown.from + ((x + 0.5) / image.width) * (shown.to - shown.from);
      const at = Math.floor(((time - data.begin_s) / (end_s - data.begin_s)) * columns);
      return at >= 0 && at < columns ? at : -1;
    });
    const [ofRanks, ofThreads] = [columnsOf(data), data.threads ? columnsOf(data.threads) : null];
    let last: Lane | null = null;
    for (let y = 0; y < image.height; y += 1) {
      const lane = this.layout.at(TOP + (y + 0.5) / scale);
      const line = y * image.width;
      if (!lane) continue;
      if (lane === last) {
        pixels.copyWithin(line, line - image.width, line);
        continue;
      }
      last = lane;
      const { source, first } = this.cellsOf(lane);
      const columnOf = lane.thread === null ? ofRanks : ofThreads!;
      for (let x = 0; x < image.width; x += 1) {
        const column = columnOf[x]!;
        const place = column < 0 ? -1 : source.cells[first + column]!;
        if (place < 0) pixels[line + x] = none;
        else if (shown.byWait) pixels[line + x] = byWait[source.wait[first + column]!] ?? none;
        else pixels[line + x] = palette[place] ?? none;
      }
    }
  }

  private labels(context: CanvasRenderingContext2D, width: number): void {
    const { shown, left, layout } = this;
    context.fillStyle = colour("--quiet");
    context.textAlign = "right";
    for (const { text, middle, isOfThread } of layout.labels) {
      context.font = `${isOfThread ? 11 : 12}px system-ui, sans-serif`;
      const short = isOfThread ? text : text.slice(0, 14);
      context.fillText(short, left - (this.threads ? GAP_OF_THREADS : GAP), middle + 4);
    }
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    const step = roundUp((shown.to - shown.from) / Math.max((width - left) / 110, 2));
    for (let time = Math.ceil(shown.from / step) * step; time <= shown.to; time += step) {
      const at = Math.min(Math.max(this.x(time, width), left + 22), width - 26);
      context.fillText(seconds(time), at, this.height() - 6);
    }
  }

  /** Where a time is on a canvas of this width. */
  private x(time: number, width: number): number {
    const { from, to } = this.shown;
    return this.left + ((time - from) / (to - from)) * (width - this.left);
  }
}
