/** The timeline: what each rank did when (ICS18, Figure 12; PPoPP20, Figure 10). */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { h } from "./dom";
import { common, counted, endOf, frameName, lossName, percent, seconds } from "./format";
import { type Rulings, rulings, stride, wanted } from "./iterations";
import type { Job } from "./job";
import type { Frame, Loop } from "./summary";
import { type Cell, TimelineCanvas } from "./timeline_canvas";
import { type Order, ORDERS } from "./timeline_layout";

/** Maximum number of call paths that the legend names. */
const MAX_LEGEND = 8;

class TimelineView {
  private readonly job: Job;
  private readonly contexts: Contexts;
  private readonly data: TimelineData;
  private readonly canvas: TimelineCanvas;
  private readonly controls = h("div", { class: "controls" });
  private readonly under = h("div", { class: "panel under", "aria-live": "polite" });
  private readonly legend = h("div", { class: "legend" });
  private readonly ruled = h("p", { class: "aside" });

  constructor(job: Job, contexts: Contexts, data: TimelineData) {
    this.job = job;
    this.contexts = contexts;
    this.data = data;
    this.canvas = new TimelineCanvas(job.summary, contexts, data, {
      hover: (cell) => this.describe(cell),
      span: (from, to) => job.go({ from, to, iteration: undefined }, true),
      choose: (node) => {
        location.hash = job.link({ view: "contexts", node });
      },
      toggle: (row) => {
        job.go({ threads: this.canvas.threads?.toggled(job.address.threads, row) }, true);
      },
    });
  }

  fill(place: HTMLElement): void {
    place.replaceChildren(this.controls,
      h("div", { class: "panel" }, this.canvas.element, this.ruled, this.leftOut(), this.legend),
      this.under);
    this.under.replaceChildren(h("p", { class: "aside" }, "Point at a cell to see its rank, time " +
      "and call path. Drag over a span to enlarge it; the wheel or + and - zoom, the arrow keys " +
      "move, 0 shows the whole run. A click opens the call path. Above the cells stand the phases, " +
      "below them the iterations of a loop; clusters are log2(ranks + 1) high." +
      (this.canvas.threads ? " The triangles show the threads of a rank." : "")));
  }

  update(): void {
    const { address } = this.job;
    const order = ORDERS.find(([id]) => id === address.order)?.[0] ?? this.defaultOrder();
    const byWait = address.colour === "wait";
    this.showControls(order, byWait);
    const loss = this.job.loss();
    const named = loss ? [loss.symptom.node, ...loss.causes.map((cause) => cause.node)] : [];
    if (!loss && address.node !== undefined) named.push(address.node);
    const loop = this.loop();
    const ruled = loop === null ? null
      : rulings(this.job.summary.loops[loop]!, this.data, this.contexts);
    const shownRulings = typeof ruled === "string" ? null : ruled;
    const [from, to] = this.shownSpan(shownRulings);
    this.canvas.show({
      order, byWait, named, from, to, rulings: shownRulings, when: loss?.when ?? null,
      expanded: this.canvas.threads?.expanded(address.threads) ?? new Set(),
    });
    this.showRuled(loop, ruled);
    this.showLegend(byWait, named.length > 0);
  }

  /** The loop that is ruled in: the chosen one, that of the loss, or the one of the run. */
  private loop(): number | null {
    const { address, summary } = this.job;
    const { loops } = summary;
    if (loops.length === 0) return null;
    if (address.loop !== undefined) return Math.min(Math.floor(address.loop), loops.length - 1);
    return wanted(loops, this.job.loss());
  }

  /** The span of the address; else the time about the chosen iteration, or the whole run. */
  private shownSpan(ruled: Rulings | null): [number, number] {
    const { address } = this.job;
    const { begin_s, end_s } = this.data;
    if (address.from !== undefined || address.to !== undefined) {
      return [address.from ?? begin_s, address.to ?? end_s];
    }
    if (address.iteration === undefined || !ruled) return [begin_s, end_s];
    const { iteration } = address;
    const index = Math.max(ruled.numbers.filter((number) => number <= iteration).length - 1, 0);
    const [from, to] = [ruled.times[index]!, ruled.times[index + 1]!];
    const beside = Math.max(2 * (to - from), 4 * ((end_s - begin_s) / this.data.columns));
    return [Math.max(from - beside, begin_s), Math.min(to + beside, end_s)];
  }

  private showRuled(loop: number | null, ruled: Rulings | string | null): void {
    if (loop === null || ruled === null) {
      this.ruled.replaceChildren();
      return;
    }
    const { loops } = this.job.summary;
    const select = h("select", { "aria-label": "Loop with its iterations", onchange: () => {
      this.job.go({ loop: Number(select.value), iteration: undefined });
    } }, loops.map((one, index) => h("option", { value: index, selected: index === loop },
      endOf(one.path))));
    const said = typeof ruled === "string" ? ruled : saidOf(loops[loop]!, ruled);
    this.ruled.replaceChildren("Iterations of ", select, " ", said);
  }

  private defaultOrder(): Order {
    return this.job.summary.clusters.length > 1 ? "cluster" : "rank";
  }

  private showControls(order: Order, byWait: boolean): void {
    const { job } = this;
    const button = (pressed: boolean, name: string, click: () => void) => h("button", {
      type: "button", "aria-pressed": String(pressed), onclick: click,
    }, name);
    const select = h("select", { "aria-label": "Loss to highlight", onchange: () => {
      const loss = select.value === "" ? undefined : Number(select.value);
      job.go({ loss, node: undefined });
    } }, h("option", { value: "" }, "highlight no loss"), job.summary.losses.map((loss, index) => {
      return h("option", { value: index, selected: index === job.address.loss },
        `loss ${index + 1}: ${lossName(loss)}`);
    }));
    this.controls.replaceChildren(
      h("span", { class: "group", role: "group", "aria-label": "Order of the ranks" },
        ORDERS.map(([id, name]) => button(id === order, name, () => job.go({ order: id })))),
      h("span", { class: "group", role: "group", "aria-label": "Colours" },
        button(!byWait, "Call paths", () => job.go({ colour: "path" })),
        button(byWait, "Waiting", () => job.go({ colour: "wait" }))),
      this.threadsButton(),
      job.summary.losses.length > 0 ? select : "",
      h("span", { class: "group" },
        button(false, "+", () => this.canvas.zoom(0.5)),
        button(false, "\u2212", () => this.canvas.zoom(2)),
        button(false, "Whole run", () => this.canvas.whole())),
    );
  }

  /** The button that expands or folds all threads. */
  private threadsButton(): HTMLElement | string {
    const { job, canvas: { threads } } = this;
    if (!threads) return "";
    return h("button", {
      type: "button", class: "all-threads", title: "Show the threads of all ranks below them",
      "aria-pressed": String(threads.areAll(threads.expanded(job.address.threads))),
      onclick: () => job.go({ threads: threads.allToggled(job.address.threads) }, true),
    }, "Threads");
  }

  /** How many threads have no row. */
  private leftOut(): HTMLElement | string {
    const unlisted = this.canvas.threads?.grid.unlisted ?? 0;
    return unlisted === 0 ? "" : h("p", { class: "aside left-out" },
      `The timeline has no room for ${counted(unlisted, "thread")} with less work.`);
  }

  private describe(cell: Cell | null) {
    if (!cell) return;
    const frames = cell.node === null ? [] : this.contexts.framesTo(cell.node);
    this.under.replaceChildren(
      h("p", {}, h("strong", {}, /^\d+$/.test(cell.ranks) ? `rank ${cell.ranks}` : `ranks ${cell.ranks}`,
        cell.thread && `, ${cell.thread}`),
        `, ${seconds(cell.from)} to ${seconds(cell.to)}, waiting ${Math.round(cell.wait * 100)}\u00a0%`),
      h("p", { class: "path" }, frames.length > 0
        ? frames.map(frameName).join(" \u203a ")
        : "nothing is known of this moment"),
    );
  }

  private showLegend(byWait: boolean, isHighlit: boolean): void {
    const entry = (name: string, text: string, node?: number) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(${name})`;
      return h("span", {}, swatch, node === undefined ? text
        : h("a", { href: this.job.link({ view: "contexts", node }) }, text));
    };
    if (byWait) {
      this.legend.replaceChildren(entry("--work", "computing"),
        entry("--wait", "waiting or communicating"));
      return;
    }
    const shown = this.canvas.legend(MAX_LEGEND);
    const names = told(shown.map(({ node }) => this.contexts.framesTo(node)));
    const paths = shown.map(({ node, fill, part }, index) => {
      return entry(fill, `${names[index]} (${percent(part)})`, node);
    });
    this.legend.replaceChildren(...paths, h("p", { class: "aside" },
      "Computation is red, yellow or brown, waiting and messages green or blue, synchronisation " +
      "purple, the rest grey, with the part of the cells in sight." +
      (isHighlit ? " What does not belong to the loss is pale." : "")));
  }
}

/** What the lines of a loop's iterations are, in words. */
function saidOf(loop: Loop, { within_s, numbers }: Rulings): string {
  const step = stride(loop);
  const each = step > 1 ? `One line every ${step} iterations` : "One line each";
  if (within_s !== null) {
    return `${each}, added up from their mean durations, to within ${seconds(within_s)}.`;
  }
  const left = step > 1 ? 0 : loop.iterations.accepted + loop.iterations.rejected - numbers.length;
  return `${each}, where samples on the rank with the longest executions saw them begin.` +
    (left > 0 ? ` ${counted(left, "iteration")} could not be told apart.` : "");
}

/** Names of call paths that tell them apart: the end, and where paths with the same end differ. */
function told(paths: Frame[][]): string[] {
  const end = (path: Frame[]) => {
    const [last, above] = [path[path.length - 1], path[path.length - 2]];
    return (last ? frameName(last) : "") + (above ? ` in ${frameName(above)}` : "");
  };
  return paths.map((path) => {
    const alike = paths.filter((other) => other !== path && end(other) === end(path));
    const apart = path[Math.max(...alike.map((other) => common([path, other])))];
    return apart ? `${frameName(apart)} \u203a ${end(path)}` : end(path);
  });
}

const views = new WeakMap<HTMLElement, TimelineView>();

export async function showTimeline(job: Job, place: HTMLElement): Promise<void> {
  const data = await job.timeline();
  if (job.address.view !== "timeline") return;
  if (!data) {
    const reason = job.summary.timeline.file === null
      ? "The run wrote no timeline." : (job.missing.timeline ?? "");
    place.replaceChildren(h("p", { class: "panel missing" }, `There is no timeline. ${reason} ` +
      "The view Loops shows how long iterations took, and Phases when phases began."));
    return;
  }
  const contexts = await job.contexts();
  let view = views.get(place);
  if (!view || place.childElementCount === 0) {
    view ??= new TimelineView(job, contexts, data);
    views.set(place, view);
    view.fill(place);
  }
  view.update();
}
