/** Elements. Text reaches the document as text only, never as markup: names come from programs. */

export type Child = Node | string | null | undefined | false | Child[];

type Attributes = Record<string, string | number | boolean | null | undefined | EventListener>;

/** An element with attributes and children. `onclick` and its like take a listener. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Gives an element these children in place of those that it has. */
export function fill(place: Element, ...children: Child[]): void {
  place.replaceChildren();
  append(place, children);
}

function append(to: Node, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(to, child);
    else to.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  }
}

/** A table with a head; cells that are numbers are aligned to the right. */
export function table(caption: string, head: string[], rows: Child[][]): HTMLElement {
  const numeric = (cell: Child) => {
    return typeof cell === "string" && /^[\u2264\u2265]?[\u00a0]?-?[\d.,]+(\u00a0\S+)?$/.test(cell);
  };
  const right = head.map((_, column) => rows.length > 0 && rows.every((row) => {
    return numeric(row[column]) || row[column] === "unknown";
  }));
  return h("div", { class: "scroll" }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head.map((title, column) => {
      return h("th", { scope: "col", class: right[column] ? "number" : null }, title);
    }))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, column) => {
      return h("td", { class: right[column] ? "number" : null }, cell);
    })))),
  ));
}

/** A list of names and values. */
export function facts(pairs: [string, Child][]): HTMLElement {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => [
    h("dt", {}, name),
    h("dd", {}, value),
  ]));
}

/** Whether a key is for the page: not for a field, and no command of the browser. */
export function isForPage({ target, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  const isForField = (target as Element).matches("input, select, textarea");
  return !isForField && !ctrlKey && !metaKey && !altKey;
}

/** The index in a list of `length` that is nearest to `at`. */
export function nearestIndex(at: number, length: number): number {
  return Math.min(Math.max(at, 0), length - 1);
}

/** A canvas at the resolution of the screen, with its drawing context in CSS pixels. */
export function fitted(canvas: HTMLCanvasElement): {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
} | null {
  const { width, height } = canvas.getBoundingClientRect();
  const context = canvas.getContext("2d");
  if (!context || width === 0 || height === 0) return null;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return { context, width, height };
}

/** The value of a CSS variable: the colours of the theme. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
