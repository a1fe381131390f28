/** Call paths: the calling-context, callers and flat views, the icicle, and one context in full. */

import type { Contexts } from "./contexts";
import { contextDetails } from "./context_details";
import { h, nearestIndex } from "./dom";
import { type Entry, type Mode, entries, shownFrame, sorted, valueOf } from "./entries";
import { count, counted, frameName, percent, place as sourcePlace } from "./format";
import { Icicle } from "./icicle";
import type { Job } from "./job";
import { METRICS, type Metric, metric, shown } from "./metrics";
import type { Frame } from "./summary";
import { ROW_HEIGHT, VirtualRows } from "./virtual_rows";

const MODES: [string, string, string][] = [
  ["tree", "Call paths", "From main down: who calls what (calling-context view)"],
  ["callers", "Callers", "From each function up: who calls it (callers view)"],
  ["flat", "Functions", "Each function once, with its loops (flat view)"],
  ["icicle", "Icicle", "Call paths as widths"],
];

/** A row in sight. */
interface Row {
  entry: Entry;
  level: number;
  open: boolean;
}

/** Maximum number of rows that a search opens: nobody reads more, and these are there at once. */
const MAX_FOUND_ROWS = 5000;

class ContextsView {
  private readonly job: Job;
  private readonly contexts: Contexts;
  private readonly list = new VirtualRows((index) => this.row(index));
  private readonly grid: HTMLElement;
  private readonly head: HTMLElement;
  private readonly details = h("aside", { class: "panel details", "aria-label": "The chosen context" });
  private readonly icicle: Icicle;
  private readonly controls: HTMLElement;
  private readonly search: HTMLInputElement;
  private readonly found = h("output", { class: "found" });
  /** Keys of the rows that are open, by mode. */
  private readonly open = new Map<string, Set<string>>();
  private rows: Row[] = [];
  private cursor = 0;
  private highlighted = new Map<number, string>();
  private readonly topsOnce = new Map<Mode, Entry[]>();

  constructor(job: Job, contexts: Contexts) {
    this.job = job;
    this.contexts = contexts;
    this.icicle = new Icicle(contexts, (node) => job.go({ node }));
    this.search = h("input", {
      id: "search", type: "search", placeholder: "Search (/)", "aria-label": "Search names",
      value: job.address.search ?? "",
      oninput: () => job.go({ search: this.search.value }, true),
      onkeydown: (event) => {
        if ((event as KeyboardEvent).key === "Enter") this.focusFirstFound();
      },
    });
    this.head = h("div", { class: "row head", role: "row" });
    this.grid = h("div", {
      class: "grid", role: "treegrid", tabindex: "0", "aria-label": "Contexts",
      onkeydown: (event) => this.key(event as KeyboardEvent),
    }, this.head, this.list.element);
    this.controls = h("div", { class: "controls" });
  }

  fill(place: HTMLElement): void {
    // Grouping all contexts takes longest: it is done before the user asks for it.
    requestIdleCallback(() => {
      this.tops("flat");
      this.tops("callers");
    });
    place.replaceChildren(this.controls, h("div", { class: "split" },
      h("div", {}, this.grid, this.icicle.element), this.details));
  }

  private mode(): string {
    const { mode } = this.job.address;
    return MODES.some(([id]) => id === mode) ? mode! : "tree";
  }

  /** Functions by their own time, call paths by all of it. */
  private defaultSort(): string {
    return this.mode() === "tree" ? "inclusive" : "exclusive";
  }

  private openKeys(): Set<string> {
    const mode = this.mode();
    let keys = this.open.get(mode);
    if (!keys) {
      keys = new Set();
      this.open.set(mode, keys);
      if (mode === "tree") this.openPath(this.contexts.hotPath(null, "inclusive.mean_s"));
    }
    return keys;
  }

  private openPath(node: number | null): void {
    if (node === null) return;
    for (const above of this.contexts.path(node).slice(0, -1)) this.openKeys().add(`n${above}`);
  }

  /** Shows what the address says. */
  update(): void {
    const { address } = this.job;
    const mode = this.mode();
    this.highlight();
    this.showControls();
    if (this.search.value !== (address.search ?? "")) this.search.value = address.search ?? "";
    const isIcicle = mode === "icicle";
    this.grid.hidden = isIcicle;
    this.icicle.element.hidden = !isIcicle;
    const node = address.node;
    const chosen = node !== undefined && this.contexts.has(node) ? node : null;
    this.details.hidden = chosen === null;
    if (isIcicle) {
      this.icicle.show(chosen, address.search ?? "", this.highlighted);
    } else {
      if (mode === "tree" && chosen !== null) this.openPath(chosen);
      this.showHead();
      this.build();
      const at = this.rows.findIndex((row) => row.entry.node === chosen);
      if (at >= 0) this.cursor = at;
      this.list.show(this.rows.length);
      if (at >= 0) this.list.reveal(at);
    }
    if (chosen !== null) this.details.replaceChildren(contextDetails(this.job, this.contexts, chosen));
  }

  private highlight(): void {
    this.highlighted = new Map();
    const loss = this.job.loss();
    for (const cause of loss?.causes ?? []) this.highlighted.set(cause.node, "cause");
    if (loss) this.highlighted.set(loss.symptom.node, "symptom");
  }

  private showControls(): void {
    const mode = this.mode();
    const tabs = MODES.map(([id, name, help]) => h("button", {
      type: "button", title: help, "aria-pressed": String(id === mode),
      onclick: () => this.job.go({ mode: id }),
    }, name));
    const hot = h("button", {
      type: "button", title: "From the chosen context to where most of its time goes (key h)",
      onclick: () => this.hotPath(),
    }, "Hot path");
    const close = h("button", { type: "button", onclick: () => {
      this.openKeys().clear();
      this.job.go({ node: undefined, search: undefined }, true);
      this.update();
    } }, "Close all");
    const buttons = h("span", { class: "group", role: "group", "aria-label": "Kind of view" }, tabs);
    const children: Node[] = [buttons, this.search, this.found];
    if (mode === "tree" || mode === "icicle") children.push(hot);
    if (mode !== "icicle") children.push(close);
    if (document.activeElement === this.search) {
      // The field keeps the cursor: only what stands around it changes.
      this.controls.firstElementChild?.replaceWith(buttons);
      return;
    }
    this.controls.replaceChildren(...children);
  }

  private hotPath(): void {
    const { address } = this.job;
    const column = metric(address.sort ?? "inclusive").column;
    const node = this.contexts.hotPath(address.node ?? null, column);
    if (node === null) return;
    this.openPath(node);
    this.job.go({ node });
  }

  private showHead(): void {
    const { sort = this.defaultSort(), ascending } = this.job.address;
    const title = (id: string, name: string, help: string) => {
      const isSorted = sort === id;
      const arrow = isSorted ? (ascending ? "\u25b4" : "\u25be") : "";
      return h("span", {
        role: "columnheader", class: id === "name" ? "name" : "number",
        "aria-sort": isSorted ? (ascending ? "ascending" : "descending") : "none",
      }, h("button", {
        type: "button", title: help, "data-sort": id,
        onclick: () => this.job.go({ sort: id, ascending: isSorted ? !ascending : id === "name" }),
      }, name + arrow));
    };
    this.head.replaceChildren(title("name", "Context", "Sort by name"),
      ...METRICS.map(({ id, title: name, help }) => title(id, name, help)));
  }

  /** Makes the list of visible rows. */
  private build(): void {
    const { sort = this.defaultSort(), ascending = false, search = "" } = this.job.address;
    const mode = this.mode() as Mode;
    const by = sort === "name" ? "name" : metric(sort);
    const open = this.openKeys();
    const order = (rows: Entry[]) => sorted(this.contexts, rows, by, !ascending);
    const rows: Row[] = [];
    const add = (all: Entry[], level: number, isOpen: (entry: Entry) => boolean,
      isShown: (entry: Entry) => boolean) => {
      for (const entry of order(all)) {
        if (!isShown(entry) || (search !== "" && rows.length >= MAX_FOUND_ROWS)) continue;
        const opened = entry.expandable && isOpen(entry);
        rows.push({ entry, level, open: opened });
        if (opened) add(entry.children(), level + 1, isOpen, isShown);
      }
    };
    if (search === "") {
      this.found.textContent = "";
      add(this.tops(mode), 0, (entry) => open.has(entry.key), () => true);
    } else if (mode === "tree") {
      const [hits, above] = this.hits(search);
      this.found.textContent = counted(hits, "match", "matches");
      add(this.tops(mode), 0,
        (entry) => (above[entry.node]! & 2) !== 0 || open.has(entry.key),
        (entry) => above[entry.node] !== 0);
    } else {
      const frames = this.contexts.matching(search);
      const tops = this.tops(mode).filter((entry) => frames[entry.frame] === 1);
      this.found.textContent = counted(tops.length, "match", "matches");
      add(tops, 0, (entry) => open.has(entry.key), () => true);
    }
    if (search !== "" && rows.length >= MAX_FOUND_ROWS) {
      this.found.textContent += `; the first ${count(MAX_FOUND_ROWS)} rows`;
    }
    this.rows = rows;
    this.cursor = Math.min(this.cursor, Math.max(rows.length - 1, 0));
  }

  /** Marks contexts: bit 1 for those that match, bit 2 for those above one, bit 4 for those below. */
  private hits(search: string): [number, Uint8Array] {
    const frames = this.contexts.matching(search);
    const marks = new Uint8Array(this.contexts.length);
    let hits = 0;
    for (let node = this.contexts.length - 1; node >= 0; node -= 1) {
      if (frames[this.contexts.frameIndex(node)] === 1) {
        marks[node]! |= 1;
        hits += 1;
      }
      const parent = this.contexts.parent(node);
      if (parent !== null && marks[node] !== 0) marks[parent]! |= 2;
    }
    for (let node = 0; node < this.contexts.length; node += 1) {
      const parent = this.contexts.parent(node);
      if (parent !== null && (marks[parent]! & 5) !== 0) marks[node]! |= 4;
    }
    return [hits, marks];
  }

  /** The outermost rows of a view, made once. */
  private tops(mode: Mode): Entry[] {
    const known = this.topsOnce.get(mode) ?? entries(this.contexts, mode);
    this.topsOnce.set(mode, known);
    return known;
  }

  private focusFirstFound(): void {
    const frames = this.contexts.matching(this.search.value);
    const row = this.rows.find(({ entry }) => frames[entry.frame] === 1);
    if (row) this.job.go({ node: row.entry.node });
    this.grid.focus();
  }

  private row(index: number): HTMLElement {
    const { entry, level, open } = this.rows[index]!;
    const { contexts } = this;
    const frame = shownFrame(contexts, entry);
    const mark = this.highlighted.get(entry.node);
    const search = this.job.address.search ?? "";
    const isHit = search !== "" &&
      `${frame.function} ${frame.file ?? ""}`.toLowerCase().includes(search.toLowerCase());
    const name = h("span", { class: isHit ? "name hit" : "name", role: "gridcell" },
      entry.expandable
        ? h("span", { class: "twist", onclick: (event) => {
          event.stopPropagation();
          this.toggle(index);
        } }, open ? "\u25be" : "\u25b8")
        : h("span", { class: "twist" }),
      h("i", { class: `swatch family-${contexts.family(entry.node)}` }),
      h("span", { class: "label", title: title(frame) }, frameName(frame)),
      mark && h("span", { class: `badge ${mark}` }, mark),
    );
    name.style.paddingLeft = `${Math.min(level, 60) * 10 + 4}px`;
    return h("div", {
      class: index === this.cursor ? "row current" : "row", role: "row",
      "aria-level": level + 1, "aria-rowindex": index + 2, "data-node": entry.node,
      "aria-expanded": entry.expandable ? String(open) : null,
      "aria-selected": String(index === this.cursor),
      onclick: () => this.choose(index),
      ondblclick: () => this.toggle(index),
    }, name, METRICS.map((metric) => this.cell(entry, metric)));
  }

  private cell(entry: Entry, metric: Metric): HTMLElement {
    const value = valueOf(this.contexts, metric, entry);
    const cell = h("span", { class: "number", role: "gridcell", "data-column": metric.id },
      shown(this.contexts, metric, value, entry.nodes));
    const elapsed = this.job.summary.run.elapsed_s;
    if (metric.unit === "seconds" && value !== null && elapsed > 0) {
      const part = Math.min(value / elapsed, 1);
      cell.style.setProperty("--part", `${(part * 100).toFixed(1)}%`);
      cell.title = `${percent(value / elapsed)} of the run time`;
    }
    if (value === 0 || value === null) cell.classList.add("none");
    return cell;
  }

  private choose(index: number): void {
    this.cursor = index;
    const row = this.rows[index];
    if (row) this.job.go({ node: row.entry.node }, true);
    this.list.show(this.rows.length);
  }

  private toggle(index: number): void {
    const row = this.rows[index];
    if (!row?.entry.expandable) return;
    const open = this.openKeys();
    if (row.open) open.delete(row.entry.key);
    else open.add(row.entry.key);
    this.cursor = index;
    this.build();
    this.list.show(this.rows.length);
  }

  private key(event: KeyboardEvent): void {
    if ((event.target as HTMLElement).tagName === "BUTTON") return;
    const row = this.rows[this.cursor];
    const page = Math.max(Math.floor(this.list.element.clientHeight / ROW_HEIGHT) - 1, 1);
    const steps: Record<string, number> = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -this.rows.length, End: this.rows.length,
    };
    const step = steps[event.key];
    if (step !== undefined) {
      this.move(this.cursor + step);
    } else if (event.key === "ArrowRight" && row) {
      if (row.entry.expandable && !row.open) this.toggle(this.cursor);
      else if (row.open) this.move(this.cursor + 1);
    } else if (event.key === "ArrowLeft" && row) {
      if (row.open) this.toggle(this.cursor);
      else this.move(this.above(this.cursor));
    } else if (event.key === "Enter" || event.key === " ") {
      this.toggle(this.cursor);
    } else if (event.key === "h") {
      this.hotPath();
    } else {
      return;
    }
    event.preventDefault();
  }

  private above(index: number): number {
    const level = this.rows[index]?.level ?? 0;
    for (let at = index - 1; at >= 0; at -= 1) {
      if (this.rows[at]!.level < level) return at;
    }
    return index;
  }

  private move(to: number): void {
    const index = nearestIndex(to, this.rows.length);
    this.choose(index);
    this.list.reveal(index);
  }
}

function title(frame: Frame): string {
  const at = sourcePlace(frame);
  return `${frame.function}${at && ` at ${at}`}, in ${frame.module}`;
}

const views = new WeakMap<HTMLElement, ContextsView>();

export async function showContexts(job: Job, place: HTMLElement): Promise<void> {
  const contexts = await job.contexts();
  if (job.address.view !== "contexts") return;
  let view = views.get(place);
  if (!view || place.childElementCount === 0) {
    if (contexts.length === 0) {
      place.replaceChildren(h("p", { class: "panel" }, "The run has no samples and no calls."));
      return;
    }
    view ??= new ContextsView(job, contexts);
    views.set(place, view);
    view.fill(place);
  }
  view.update();
}
