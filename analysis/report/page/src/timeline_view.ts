/** The timeline: what each rank did when (ICS18, Figure 12; PPoPP20, Figure 10). */

import type { TimelineData } from "./blocks";
import type { Contexts } from "./contexts";
import { h } from "./dom";
import { frameName, seconds } from "./format";
import type { Job } from "./job";
import { type Order, ORDERS, TimelineCanvas } from "./timeline_canvas";

class TimelineView {
  private readonly job: Job;
  private readonly contexts: Contexts;
  private readonly data: TimelineData;
  private readonly canvas: TimelineCanvas;
  private readonly controls = h("div", { class: "controls" });
  private readonly under = h("div", { class: "panel under", "aria-live": "polite" });
  private readonly legend = h("div", { class: "legend" });

  constructor(job: Job, contexts: Contexts, data: TimelineData) {
    this.job = job;
    this.contexts = contexts;
    this.data = data;
    this.canvas = new TimelineCanvas(job.summary, contexts, data, {
      hover: (cell) => this.describe(cell),
      span: (from, to) => job.go({ from, to }, true),
      choose: (node) => {
        location.hash = job.link({ view: "contexts", node });
      },
    });
  }

  fill(place: HTMLElement): void {
    place.replaceChildren(this.controls, h("div", { class: "panel" }, this.canvas.element, this.legend),
      this.under);
    this.under.replaceChildren(h("p", { class: "aside" }, "Point at a cell to see its rank, time " +
      "and call path. Drag over a span to enlarge it; the wheel or + and - zoom, the arrow keys " +
      "move, 0 shows the whole run. A click opens the call path."));
  }

  update(): void {
    const { address } = this.job;
    const order = ORDERS.find(([id]) => id === address.order)?.[0] ?? this.defaultOrder();
    const byWait = address.colour === "wait";
    this.showControls(order, byWait);
    const loss = this.job.loss();
    const named = loss ? [loss.symptom.node, ...loss.causes.map((cause) => cause.node)] : [];
    if (!loss && address.node !== undefined) named.push(address.node);
    this.canvas.show({
      order, byWait, named,
      from: address.from ?? this.data.begin_s, to: address.to ?? this.data.end_s,
    });
    this.showLegend(byWait);
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
      const { loss, node, ...rest } = job.address;
      const chosen = select.value === "" ? {} : { loss: Number(select.value) };
      job.address = rest;
      job.go(chosen);
    } }, h("option", { value: "" }, "highlight no loss"), job.summary.losses.map((loss, index) => {
      const last = (loss.causes[0]?.path ?? loss.symptom.path).at(-1);
      return h("option", { value: index, selected: index === job.address.loss },
        `loss ${index + 1}: ${last ? frameName(last) : loss.kind}`);
    }));
    this.controls.replaceChildren(
      h("span", { class: "group", role: "group", "aria-label": "Order of the ranks" },
        ORDERS.map(([id, name]) => button(id === order, name, () => job.go({ order: id })))),
      h("span", { class: "group", role: "group", "aria-label": "Colours" },
        button(!byWait, "Call paths", () => job.go({ colour: "path" })),
        button(byWait, "Waiting", () => job.go({ colour: "wait" }))),
      job.summary.losses.length > 0 ? select : "",
      h("span", { class: "group" },
        button(false, "+", () => this.canvas.zoom(0.5)),
        button(false, "\u2212", () => this.canvas.zoom(2)),
        button(false, "Whole run", () => this.canvas.whole())),
    );
  }

  private describe(cell: { ranks: string; from: number; to: number; node: number | null; wait: number } | null) {
    if (!cell) return;
    const { contexts } = this;
    const frames = cell.node === null ? [] : contexts.path(cell.node).map((node) => contexts.frame(node));
    this.under.replaceChildren(
      h("p", {}, h("strong", {}, /^\d+$/.test(cell.ranks) ? `rank ${cell.ranks}` : `ranks ${cell.ranks}`),
        `, ${seconds(cell.from)} to ${seconds(cell.to)}, waiting ${Math.round(cell.wait * 100)}\u00a0%`),
      h("p", { class: "path" }, frames.length > 0
        ? frames.map(frameName).join(" \u203a ")
        : "nothing is known of this moment"),
    );
  }

  private showLegend(byWait: boolean): void {
    const entries = byWait
      ? [["--work", "computing"], ["--wait", "waiting or communicating"]] as const
      : [["--work", "computation (red to brown by call path)"], ["--wait", "waiting, messages"],
        ["--sync", "synchronisation of ranks"], ["--other", "other"]] as const;
    this.legend.replaceChildren(...entries.map(([name, text]) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(${name})`;
      return h("span", {}, swatch, text);
    }));
  }
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
