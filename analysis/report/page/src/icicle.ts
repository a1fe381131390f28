/** Call paths as widths: a context's bar is as wide as its inclusive time. */

import type { Contexts } from "./contexts";
import { colour, fitted, h } from "./dom";
import { frameName, seconds } from "./format";

const BAR = 20;
/** Bars narrower than this, in CSS pixels, are left out. */
const MIN_WIDTH = 0.5;

interface Bar {
  node: number;
  x: number;
  width: number;
  level: number;
}

export class Icicle {
  readonly element: HTMLElement;
  private readonly contexts: Contexts;
  private readonly canvas: HTMLCanvasElement;
  private readonly tip = h("output", { class: "tip" });
  private bars: Bar[] = [];
  private top: number | null = null;

  /** `choose` is called with the context that was clicked. */
  constructor(contexts: Contexts, choose: (node: number) => void) {
    this.contexts = contexts;
    this.canvas = h("canvas", {
      role: "img", tabindex: "0",
      "aria-label": "Icicle of call paths; the view Call paths has the same as rows",
    });
    const out = h("button", { type: "button", onclick: () => {
      this.top = null;
      choose(contexts.roots[0] ?? 0);
    } }, "Whole run");
    this.element = h("figure", { class: "icicle" }, h("figcaption", {}, out, this.tip), this.canvas);
    this.canvas.addEventListener("pointermove", (event) => {
      const bar = this.at(event.offsetX, event.offsetY);
      this.tip.textContent = bar ? this.describe(bar.node) : "";
    });
    this.canvas.addEventListener("click", (event) => {
      const bar = this.at(event.offsetX, event.offsetY);
      if (bar) choose(bar.node);
    });
    this.canvas.addEventListener("dblclick", (event) => {
      this.top = this.at(event.offsetX, event.offsetY)?.node ?? null;
      choose(this.top ?? contexts.roots[0] ?? 0);
    });
  }

  private describe(node: number): string {
    const time = seconds(this.contexts.value("inclusive.mean_s", node));
    return `${frameName(this.contexts.frame(node))}: ${time} per rank`;
  }

  private at(x: number, y: number): Bar | undefined {
    const level = Math.floor(y / BAR);
    return this.bars.find((bar) => {
      return bar.level === level && x >= bar.x && x < bar.x + Math.max(bar.width, 1);
    });
  }

  /** Draws the contexts; a double click on a bar makes it the whole width. */
  show(chosen: number | null, search: string, highlighted: Map<number, string>): void {
    const { contexts } = this;
    const width = this.element.clientWidth || 800;
    const times = contexts.column("inclusive.mean_s");
    const roots = this.top === null ? contexts.roots : [this.top];
    const whole = roots.reduce((sum, root) => sum + times[root]!, 0);
    this.bars = [];
    let levels = 1;
    const add = (nodes: Iterable<number>, from: number, level: number, scale: number) => {
      let x = from;
      const order = [...nodes].sort((a, b) => times[b]! - times[a]!);
      for (const node of order) {
        const wide = times[node]! * scale;
        if (!(wide >= MIN_WIDTH)) break;
        this.bars.push({ node, x, width: wide, level });
        levels = Math.max(levels, level + 1);
        add(contexts.below(node), x, level + 1, scale);
        x += wide;
      }
    };
    if (whole > 0) add(roots, 0, 0, width / whole);
    this.canvas.style.height = `${levels * BAR}px`;
    const surface = fitted(this.canvas);
    if (!surface) return;
    this.draw(surface.context, chosen, search, highlighted);
  }

  private draw(
    context: CanvasRenderingContext2D,
    chosen: number | null,
    search: string,
    highlighted: Map<number, string>,
  ): void {
    const { contexts } = this;
    const found = search === "" ? null : contexts.matching(search);
    const fills = {
      work: colour("--work"), wait: colour("--wait"), sync: colour("--sync"),
      other: colour("--other"),
    };
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const { node, x, width, level } of this.bars) {
      context.globalAlpha = found && found[contexts.frameIndex(node)] === 0 ? 0.3 : 1;
      context.fillStyle = fills[contexts.family(node)];
      context.fillRect(x, level * BAR, Math.max(width - 0.5, 0.5), BAR - 1);
      const mark = highlighted.get(node);
      if (node === chosen || mark) {
        context.strokeStyle = mark ? colour(`--${mark}`) : colour("--text");
        context.lineWidth = 2;
        context.strokeRect(x + 1, level * BAR + 1, Math.max(width - 2.5, 1), BAR - 3);
      }
      if (width > 30) {
        context.fillStyle = colour("--on-fill");
        context.save();
        context.beginPath();
        context.rect(x, level * BAR, width - 4, BAR);
        context.clip();
        context.fillText(frameName(contexts.frame(node)), x + 4, level * BAR + BAR / 2);
        context.restore();
      }
    }
    context.globalAlpha = 1;
  }
}
