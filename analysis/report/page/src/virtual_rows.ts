/** A list of many rows of one height, of which only those in sight are elements. */

import { h } from "./dom";

/** Height of a row in CSS pixels; the style sheet has the same. */
export const ROW_HEIGHT = 26;
/** Rows beyond the edge that are kept, so that scrolling shows no gaps. */
const MARGIN = 8;

export class VirtualRows {
  readonly element: HTMLElement;
  private readonly inner: HTMLElement;
  private readonly make: (index: number) => HTMLElement;
  private length = 0;
  private first = -1;
  private last = -1;
  private pending = false;

  /** `make` returns the element of a row. */
  constructor(make: (index: number) => HTMLElement) {
    this.make = make;
    this.inner = h("div", { class: "rows-inner", role: "presentation" });
    this.element = h("div", { class: "rows", role: "presentation" }, this.inner);
    this.element.addEventListener("scroll", () => {
      if (this.pending) return;
      this.pending = true;
      requestAnimationFrame(() => {
        this.pending = false;
        this.render(false);
      });
    });
  }

  /** Shows this many rows anew. */
  show(length: number): void {
    this.length = length;
    this.inner.style.height = `${length * ROW_HEIGHT}px`;
    this.render(true);
  }

  /** Makes a row visible. */
  reveal(index: number): void {
    const top = index * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + ROW_HEIGHT > scrollTop + clientHeight) {
      this.element.scrollTop = Math.max(top - clientHeight / 3, 0);
    }
    this.render(true);
  }

  private render(anew: boolean): void {
    const { scrollTop, clientHeight } = this.element;
    const printed = window.matchMedia("print").matches;
    const height = clientHeight || 600;
    const first = printed ? 0 : Math.max(Math.floor(scrollTop / ROW_HEIGHT) - MARGIN, 0);
    const last = Math.min(Math.ceil((scrollTop + height) / ROW_HEIGHT) + MARGIN, this.length);
    if (!anew && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const rows: HTMLElement[] = [];
    for (let index = first; index < last; index += 1) {
      const row = this.make(index);
      row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
      rows.push(row);
    }
    this.inner.replaceChildren(...rows);
  }
}
