/** What the page shows, as the part of its address behind `#`: an address can be shared. */

export const VIEWS = ["verdict", "timeline", "contexts", "ranks", "loops", "phases", "run"] as const;
export type View = (typeof VIEWS)[number];

/** The parts of an address apart from its view. */
interface Parts {
  /** Index of the loss that is highlighted. */
  loss?: number;
  /** Index of the context that is chosen. */
  node?: number;
  /** Of the contexts: tree, callers, flat or icicle. */
  mode?: string;
  sort?: string;
  ascending?: boolean;
  search?: string;
  /** Of the timeline: cluster, rank or node. */
  order?: string;
  /** Of the timeline: path or wait. */
  colour?: string;
  /** Of the timeline: the ranks with expanded threads, as a list, or all. */
  threads?: string;
  from?: number;
  to?: number;
  /** Of the ranks: what the scatter plot shows. */
  quantity?: string;
  /** Of the communication matrix: calls, bytes or wait_s. */
  matrix?: string;
  /** Index of the loop that is chosen. */
  loop?: number;
  /** Index of the parallel region that is chosen. */
  region?: number;
  /** Of the timeline: the number of the iteration that is shown. */
  iteration?: number;
}

/** An address. A part that is absent or `undefined` has its default. */
export type Address = { view: View } & { [K in keyof Parts]: Parts[K] | undefined };

const NUMBERS = ["loss", "node", "from", "to", "loop", "iteration", "region"] as const;
const TEXTS = ["mode", "sort", "search", "order", "colour", "quantity", "matrix", "threads"] as const;

/** Reads an address; parts that cannot be read are left out. */
export function parse(hash: string): Address {
  const [name, query] = hash.replace(/^#/, "").split("?", 2);
  const view = VIEWS.find((view) => view === name) ?? "verdict";
  const address: Address = { view };
  const parts = new URLSearchParams(query ?? "");
  for (const key of NUMBERS) {
    const text = parts.get(key);
    const number = text === null || text === "" ? NaN : Number(text);
    if (Number.isFinite(number) && number >= 0) address[key] = number;
  }
  for (const key of TEXTS) {
    const text = parts.get(key);
    if (text !== null) address[key] = text;
  }
  if (parts.get("ascending") === "1") address.ascending = true;
  return address;
}

/** The part of an address behind `#`, with it. */
export function format(address: Address): string {
  const parts = new URLSearchParams();
  for (const key of [...NUMBERS, ...TEXTS]) {
    const value = address[key];
    if (value !== undefined && value !== "") parts.set(key, String(value));
  }
  if (address.ascending) parts.set("ascending", "1");
  const query = parts.toString();
  return `#${address.view}${query && "?"}${query}`;
}
