/** Threads below the ranks of the timeline: which ones are shown, and the buttons that show them. */

import type { ThreadGrid, TimelineData } from "./blocks";
import { h } from "./dom";
import { numbersIn } from "./format";

/** In an address: all ranks with threads are expanded. */
const ALL = "all";
/** Maximum number of ranks that an address is read for. */
const MAX_RANKS = 512;
/** Size of a button, in pixels: also the least distance of two. */
const BUTTON = 16;

/** The rows of threads of a timeline, by the row of their rank. */
export class ThreadRows {
  readonly grid: ThreadGrid;
  private readonly byRow = new Map<number, number[]>();
  /** The row of each rank. */
  private readonly rowOf = new Map<number, number>();

  constructor(data: TimelineData, grid: ThreadGrid) {
    this.grid = grid;
    data.rows.forEach(({ ranks }, row) => {
      if (/^\d+$/.test(ranks)) this.rowOf.set(Number(ranks), row);
    });
    grid.rows.forEach(({ rank }, thread) => {
      const row = this.rowOf.get(rank);
      if (row === undefined) return;
      this.byRow.set(row, [...(this.byRow.get(row) ?? []), thread]);
    });
  }

  /** The indices of the threads below a row. */
  below(row: number): number[] {
    return this.byRow.get(row) ?? [];
  }

  /** A thread in words: `slowest thread 3`. */
  name(thread: number): string {
    const { kind, number } = this.grid.rows[thread]!;
    return kind === "thread" ? `thread ${number}` : `${kind} thread ${number}`;
  }

  /** Reads which rows an address expands. */
  expanded(text: string | undefined): Set<number> {
    if (text === ALL) return new Set(this.byRow.keys());
    const rows = new Set<number>();
    for (const rank of numbersIn(text ?? "", MAX_RANKS)) {
      const row = this.rowOf.get(rank);
      if (row !== undefined && this.byRow.has(row)) rows.add(row);
    }
    return rows;
  }

  /** Whether all rows that have threads are expanded. */
  areAll(rows: ReadonlySet<number>): boolean {
    return rows.size === this.byRow.size;
  }

  /** The part of an address that expands these rows; nothing if there are none. */
  address(rows: ReadonlySet<number>): string | undefined {
    if (rows.size === 0) return undefined;
    if (this.areAll(rows)) return ALL;
    const ranks = [...this.rowOf].filter(([, row]) => rows.has(row)).map(([rank]) => rank);
    return list(ranks.sort((a, b) => a - b));
  }

  /** The address with the threads of one row expanded, or folded if they are. */
  toggled(text: string | undefined, row: number): string | undefined {
    const rows = this.expanded(text);
    if (!rows.delete(row)) rows.add(row);
    return this.address(rows);
  }

  /** The address with all threads expanded, or with none if all are. */
  allToggled(text: string | undefined): string | undefined {
    return this.areAll(this.expanded(text)) ? undefined : ALL;
  }
}

/** A rank list of ascending numbers: `0-3,8`. */
function list(numbers: number[]): string {
  const parts: [number, number][] = [];
  for (const number of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] + 1 === number) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** A row of a rank as it lies on the canvas. */
interface PlacedRow {
  row: number;
  top: number;
  height: number;
}

/** Buttons over the left edge of the canvas: one for each rank with threads that has room for it. */
export class Disclosures {
  readonly element = h("div", { class: "disclosures", role: "group", "aria-label": "Threads of the ranks" });
  private readonly threads: ThreadRows;
  private readonly rows: TimelineData["rows"];
  private readonly toggle: (row: number) => void;
  /** The buttons in place, by row: a button that stays keeps the focus. */
  private buttons = new Map<number, HTMLButtonElement>();

  constructor(threads: ThreadRows, rows: TimelineData["rows"], toggle: (row: number) => void) {
    this.threads = threads;
    this.rows = rows;
    this.toggle = toggle;
  }

  /** Puts the buttons beside these rows, from top to bottom. */
  place(rows: PlacedRow[], expanded: ReadonlySet<number>, left: number): void {
    const placed = new Map<number, HTMLButtonElement>();
    let below = -Infinity;
    for (const { row, top, height } of rows) {
      const middle = top + height / 2;
      if (middle < below + BUTTON || this.threads.below(row).length === 0) continue;
      below = middle;
      const button = this.buttons.get(row) ?? this.button(row);
      const isOpen = expanded.has(row);
      button.setAttribute("aria-expanded", String(isOpen));
      button.textContent = isOpen ? "\u25be" : "\u25b8";
      button.style.left = `${left}px`;
      button.style.top = `${middle - BUTTON / 2}px`;
      placed.set(row, button);
    }
    for (const [row, button] of this.buttons) if (!placed.has(row)) button.remove();
    // In the order of the rows; an element that is moved would lose the focus.
    let next = this.element.firstElementChild;
    for (const button of placed.values()) {
      if (button === next) next = next.nextElementSibling;
      else this.element.insertBefore(button, next);
    }
    this.buttons = placed;
  }

  private button(row: number): HTMLButtonElement {
    const name = `Threads of rank ${this.rows[row]!.ranks}`;
    return h("button", {
      type: "button", class: "disclosure", "aria-label": name, title: name,
      onclick: () => this.toggle(row),
    });
  }
}
