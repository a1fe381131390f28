/** Small charts on a canvas: values over time, over iterations or over ranks. */

import { colour, fitted, h, nearestIndex } from "./dom";
import { percent, roundUp, seconds } from "./format";
import type { EfficiencyWindow } from "./summary";

/** A point of a chart. */
interface Point {
  series: number;
  index: number;
}

/** Points of one kind. */
export interface Series {
  name: string;
  colour: string;
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  /** Whether neighbouring points are joined. */
  joined: boolean;
  /** Whether only the line is drawn. */
  bare?: boolean;
}

/** A vertical line, or a band where `to` is given. */
export interface Rule {
  x: number;
  to?: number;
  label: string;
}

/** The space between two curves, behind all points. */
interface Band {
  colour: string;
  x: ArrayLike<number>;
  low: ArrayLike<number>;
  high: ArrayLike<number>;
}

interface Chart {
  label: string;
  height: number;
  xRange: [number, number];
  yMax: number;
  xText: (x: number) => string;
  yText: (y: number) => string;
  xTitle: string;
  /** Where the axis has labels, rising; by default at round numbers. */
  xTicks?: number[];
  /** Whether only whole numbers stand on the axis: ranks, iterations. */
  xWhole?: boolean;
  series: Series[];
  rules?: Rule[];
  bands?: Band[];
  /** Horizontal lines: means and limits. */
  levels?: { y: number; label: string }[];
  /** What a point says when the pointer is at it. */
  tip?: (series: number, index: number) => string;
  /** A point was clicked. */
  choose?: (series: number, index: number) => void;
}

const LEFT = 64;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 34;

/** Makes a chart, which is drawn once it is in the document. */
export function chart(spec: Chart): HTMLElement {
  const canvas = h("canvas", { role: "img", "aria-label": spec.label, tabindex: "0" });
  canvas.style.height = `${spec.height}px`;
  const tip = h("output", { class: "tip" });
  const figure = h("figure", { class: "chart" }, canvas,
    h("figcaption", {}, spec.series.length > 1 && spec.series.map((series) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = series.colour;
      return h("span", {}, swatch, series.name);
    }), tip));
  // Draws when the canvas gets its size, which may be after the first frame, and when that changes.
  new ResizeObserver(() => draw(canvas, spec)).observe(canvas);
  let near: Point | null = null;
  canvas.addEventListener("pointermove", (event) => {
    near = nearest(canvas, spec, event.offsetX, event.offsetY);
    tip.textContent = near && spec.tip ? spec.tip(near.series, near.index) : "";
  });
  canvas.addEventListener("click", () => {
    if (near) spec.choose?.(near.series, near.index);
  });
  // Left and right walk over the points of a series, up and down over the series.
  canvas.addEventListener("keydown", (event) => {
    const [along, across] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1],
      ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (along === 0 && across === 0) return;
    const series = nearestIndex((near?.series ?? 0) + across!, spec.series.length);
    const length = spec.series[series]?.x.length ?? 0;
    if (length === 0) return;
    const index = nearestIndex((near?.index ?? -1) + along!, length);
    near = { series, index };
    tip.textContent = spec.tip?.(series, index) ?? "";
    event.preventDefault();
  });
  return figure;
}

function scales(spec: Chart, width: number, height: number) {
  const [from, to] = spec.xRange;
  const span = to - from || 1;
  const x = (value: number) => LEFT + ((value - from) / span) * (width - LEFT - RIGHT);
  const y = (value: number) => {
    return height - BOTTOM - (value / (spec.yMax || 1)) * (height - TOP - BOTTOM);
  };
  return { x, y };
}

function draw(canvas: HTMLCanvasElement, spec: Chart): void {
  const surface = fitted(canvas);
  if (!surface) return;
  const { context, width, height } = surface;
  const { x, y } = scales(spec, width, height);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = colour("--grid");
  for (const rule of spec.rules ?? []) {
    const right = rule.to === undefined ? x(rule.x) + 1 : x(rule.to);
    context.fillRect(x(rule.x), TOP, Math.max(right - x(rule.x), 1), height - TOP - BOTTOM);
  }
  const text = colour("--quiet");
  const LINES = 5;
  // Fractions are divided evenly, all else at round numbers.
  const step = spec.yMax === 1 ? 1 / 4 : roundUp((spec.yMax || 1) / LINES);
  for (let value = 0; value <= spec.yMax * (1 + 1e-9); value += step) {
    context.fillStyle = colour("--grid");
    context.fillRect(LEFT, Math.round(y(value)), width - LEFT - RIGHT, 1);
    context.fillStyle = text;
    context.textAlign = "right";
    context.fillText(spec.yText(value), LEFT - 6, y(value) + 4);
  }
  axis(context, spec, width, height, x);
  for (const level of spec.levels ?? []) {
    context.fillStyle = text;
    for (let at = LEFT; at < width - RIGHT; at += 8) context.fillRect(at, y(level.y), 4, 1);
    context.textAlign = "right";
    context.fillText(level.label, width - RIGHT - 2, y(level.y) - 4);
  }
  for (const band of spec.bands ?? []) fillBand(context, band, x, y);
  for (const series of spec.series) points(context, series, x, y);
}

function fillBand(
  context: CanvasRenderingContext2D,
  band: Band,
  x: (value: number) => number,
  y: (value: number) => number,
): void {
  context.beginPath();
  const length = band.x.length;
  for (let index = 0; index < length; index += 1) context.lineTo(x(band.x[index]!), y(band.high[index]!));
  for (let index = length - 1; index >= 0; index -= 1) {
    context.lineTo(x(band.x[index]!), y(band.low[index]!));
  }
  context.closePath();
  context.globalAlpha = 0.2;
  context.fillStyle = band.colour;
  context.fill();
  context.globalAlpha = 1;
}

function axis(
  context: CanvasRenderingContext2D,
  spec: Chart,
  width: number,
  height: number,
  x: (value: number) => number,
): void {
  const [from, to] = spec.xRange;
  const wanted = Math.max((width - LEFT) / 110, 1);
  const step = Math.max(roundUp((to - from || 1) / wanted), spec.xWhole ? 1 : 0);
  const first = Math.ceil(from / step) * step;
  const even = () => {
    return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, at) => first + at * step);
  };
  context.textAlign = "center";
  let last = "";
  for (const value of spec.xTicks ?? even()) {
    const label = spec.xText(value);
    if (label !== last) context.fillText(label, Math.min(x(value), width - 24), height - BOTTOM + 15);
    last = label;
  }
  context.fillText(spec.xTitle, (LEFT + width - RIGHT) / 2, height - 4);
}

function points(
  context: CanvasRenderingContext2D,
  series: Series,
  x: (value: number) => number,
  y: (value: number) => number,
): void {
  context.fillStyle = context.strokeStyle = series.colour;
  const length = series.x.length;
  if (series.joined) {
    context.lineWidth = 1.5;
    context.beginPath();
    // What is unknown is no line between its neighbours.
    let isOpen = false;
    for (let index = 0; index < length; index += 1) {
      const value = series.y[index]!;
      const [at, up] = [x(series.x[index]!), y(value)];
      if (!Number.isNaN(value)) {
        if (isOpen) context.lineTo(at, up);
        else context.moveTo(at, up);
      }
      isOpen = !Number.isNaN(value);
    }
    context.stroke();
  }
  if (series.bare) return;
  const radius = length > 5000 ? 0.75 : length > 400 ? 1.5 : series.joined ? 2 : 3;
  for (let index = 0; index < length; index += 1) {
    const value = series.y[index]!;
    if (Number.isNaN(value)) continue;
    const [at, up] = [x(series.x[index]!), y(value)];
    if (radius < 2) {
      context.fillRect(at - radius, up - radius, 2 * radius, 2 * radius);
    } else {
      context.beginPath();
      context.arc(at, up, radius, 0, 2 * Math.PI);
      context.fill();
    }
  }
}

function nearest(canvas: HTMLCanvasElement, spec: Chart, px: number, py: number): Point | null {
  const { width, height } = canvas.getBoundingClientRect();
  const { x, y } = scales(spec, width, height);
  let best: Point | null = null;
  let least = Infinity;
  for (const [number, series] of spec.series.entries()) {
    for (let index = 0; index < series.x.length; index += 1) {
      const dx = x(series.x[index]!) - px;
      const dy = y(series.y[index]!) - py;
      const distance = dx * dx + (dy * dy) / 4;
      if (distance < least) {
        least = distance;
        best = { series: number, index };
      }
    }
  }
  return best;
}

/** The smallest and the largest of some values; `[Infinity, -Infinity]` without any. */
export function extent(values: ArrayLike<number>): [number, number] {
  let [least, most] = [Infinity, -Infinity];
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index]!;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}

/** The colours of series. */
export function palette(index: number): string {
  return colour(`--series-${index % 6}`);
}

/** Efficiencies over windows of time. */
export function windowsChart(windows: EfficiencyWindow[]): HTMLElement {
  const middles = windows.map((window) => (window.begin_s + window.end_s) / 2);
  const keys = ["parallel", "load_balance", "communication"] as const;
  const names = ["parallel", "load balance", "communication"];
  return chart({
    label: "Efficiencies over time",
    height: 150,
    xRange: [windows[0]!.begin_s, windows[windows.length - 1]!.end_s],
    yMax: 1,
    xText: seconds,
    yText: percent,
    xTitle: "time since the begin of the run",
    series: keys.map((key, index) => ({
      name: names[index]!,
      colour: palette(index),
      x: middles,
      y: windows.map((window) => window[key] ?? NaN),
      joined: true,
    })),
    tip: (series, index) => {
      const window = windows[index]!;
      return `${seconds(window.begin_s)} to ${seconds(window.end_s)}: ${names[series]} ` +
        percent(window[keys[series]!]);
    },
  });
}
