/** Contexts and ranks that vary together (Fowler's slides: bi-clustering), as heat maps. */

import type { RankTimes } from "./blocks";
import type { Contexts } from "./contexts";
import { type Child, h, nearestIndex } from "./dom";
import {
  capital, common, count, counted, frameName, pathOf, ranks as rankWords, seconds,
} from "./format";
import {
  type HeatCells, type HeatColumn, SHADES, binning, heatCells, shade, shadeBegin,
} from "./heat_cells";
import type { Job } from "./job";
import type { Bicluster } from "./summary";

/** Maximum number of heat maps; further groups show their sentence and links to their contexts. */
const MAX_HEAT_MAPS = 3;
/** Maximum number of contexts in a list. */
const MAX_LISTED = 8;
/** Maximum number of columns for cells with numbers: cells of more columns are too narrow. */
const MAX_NUMBERED_COLUMNS = 10;
/** Width of the group's columns together, in rem, if few columns of the group stand beside many. */
const MIN_MEMBERS_REM = 9;
/** Maximum number of ranks above columns of that width. */
const MAX_LABELS_OF_FEW = 4;
/** Index of a row's first coloured cell: the context and the mean precede the ranks. */
const FIRST_CELL = 2;
/** Maximum number of ranks above the columns. */
const MAX_RANK_LABELS = 12;

/** The panel of these times, kept because a view is drawn again with each change of the address. */
const kept = new WeakMap<RankTimes, { loss: number | undefined; panel: HTMLElement }>();

/** The panel of all groups; nothing without groups. `sentences` holds one sentence per group. */
export function biclustersPanel(
  job: Job,
  contexts: Contexts,
  times: RankTimes | null,
  sentences: string[],
): Child {
  const groups = job.summary.biclusters ?? [];
  if (groups.length === 0) return null;
  const { loss } = job.address;
  const before = times && kept.get(times);
  // Links of the panel name the loss.
  if (before && before.loss === loss) return before.panel;
  const panel = h("section", { class: "panel biclusters" },
    h("h2", {}, "Contexts and ranks that vary together"),
    !times && h("p", { class: "missing" },
      "The heat maps need the times of single ranks, which are not in this page."),
    groups.map((group, index) => {
      const known = { ...group, nodes: group.nodes.filter((node) => contexts.has(node)) };
      const names = namesOf(contexts, known.nodes);
      const cells = times && index < MAX_HEAT_MAPS ? heatCells(known, times) : null;
      return h("div", { class: "bicluster" },
        h("p", {}, capital(sentences[index] ?? "")),
        cells && cells.rows.length > 0 && heatMap(job, contexts, names, known, cells),
        listed(job, contexts, names, known, cells));
    }));
  if (times) kept.set(times, { loss, panel });
  return panel;
}

/** The contexts that have no row. */
function listed(
  job: Job,
  contexts: Contexts,
  names: Map<number, string>,
  group: Bicluster,
  cells: HeatCells | null,
): Child {
  const nodes = cells ? cells.missing : group.nodes;
  return nodes.length > 0 && h("p", { class: "aside" },
    cells ? "The page has no values of single ranks in " : "Contexts: ",
    nodes.slice(0, MAX_LISTED).map((node, index) => [
      index > 0 && ", ", link(job, contexts, names, node),
    ]),
    nodes.length > MAX_LISTED && ` and ${count(nodes.length - MAX_LISTED)} more`, ".");
}

function link(
  job: Job,
  contexts: Contexts,
  names: Map<number, string>,
  node: number,
): HTMLElement {
  const path = pathOf(contexts.framesTo(node));
  return h("a", { href: job.link({ view: "contexts", node }), title: path }, names.get(node));
}

/** Names of a group's contexts: the innermost frames that tell them apart. */
function namesOf(contexts: Contexts, nodes: number[]): Map<number, string> {
  const paths = nodes.map((node) => contexts.framesTo(node).reverse());
  const depth = Math.min(...paths.map(({ length }) => length)) - 1;
  const shared = paths.length < 2 ? 0 : Math.min(depth, common(paths));
  return new Map(nodes.map((node, at) => [node, frameName(paths[at]![shared]!)]));
}

function heatMap(
  job: Job,
  contexts: Contexts,
  names: Map<number, string>,
  group: Bicluster,
  cells: HeatCells,
): HTMLElement {
  const { columns, rows, largest } = cells;
  const text = group.event ? count : seconds;
  const unit = group.event ? ` ${group.event}` : "";
  const tip = h("output", { class: "tip" });
  const members = columns.filter(({ isMember }) => isMember).length;
  const isNumbered = columns.length <= MAX_NUMBERED_COLUMNS;
  const body = rows.map(({ node, mean, differences }) => h("tr", {},
    h("th", { scope: "row" }, link(job, contexts, names, node)),
    h("td", { class: "number" }, text(mean)),
    Array.from(differences, (difference, at) => {
      const isKnown = !Number.isNaN(difference);
      const shown = isKnown ? signed(difference, text) : "unknown";
      const colour = isKnown ? shadeClass(shade(difference, largest)) : "no-value";
      return h("td", {
        class: `heat ${colour}${begins(columns, at)}`,
        "aria-label": isNumbered ? null : shown,
      }, isNumbered && shown);
    })));
  const grid = h("table", {
    class: isNumbered ? "heat-map numbered" : "heat-map", role: "grid",
    "aria-label": "Difference of each rank from the mean of the context",
  }, widths(columns, members), head(job, group, columns, members), h("tbody", {}, body));
  lead(grid, (at, column) => {
    const { node, mean, differences } = rows[at]!;
    tip.textContent = sentence(columns[column]!, differences[column]!, mean, text, unit) +
      ` in ${names.get(node)}`;
  });
  const notes = [binning(cells), cells.omitted > 0 &&
    `Without a row: ${counted(cells.omitted, "context")} with smaller differences.`];
  return h("figure", { class: "chart" },
    h("div", { class: "scroll" }, grid),
    h("figcaption", {}, legend(largest, text, unit), tip),
    notes.map((note) => note && h("p", { class: "aside" }, note)));
}

/** Widths of the columns: few columns of a group are widened, so that their title fits. */
function widths(columns: HeatColumn[], members: number): HTMLElement {
  const isWidened = areFew(members, columns);
  return h("colgroup", {}, h("col", { class: "context" }), h("col", { class: "mean" }),
    columns.map(({ isMember }) => {
      const col = h("col");
      if (isMember && isWidened) col.style.width = `${MIN_MEMBERS_REM / members}rem`;
      return col;
    }));
}

function areFew(members: number, columns: HeatColumn[]): boolean {
  return columns.length > MAX_NUMBERED_COLUMNS && members < columns.length / 8;
}

/** Titles of the two sides of the map, and ranks above the columns. */
function head(job: Job, group: Bicluster, columns: HeatColumn[], members: number): HTMLElement {
  const sides: [number, string][] = [
    [members, capital(rankWords(group.ranks, job.summary.run.ranks))],
    [columns.length - members, "The others"],
  ];
  const step = Math.ceil(columns.length / MAX_RANK_LABELS);
  const memberStep = areFew(members, columns) ? Math.ceil(members / MAX_LABELS_OF_FEW) : step;
  return h("thead", {},
    h("tr", {},
      h("th", { rowspan: 2, scope: "col" }, "Context"),
      h("th", { rowspan: 2, scope: "col", class: "number" }, "Mean"),
      sides.map(([width, title], index) => width > 0 && h("th", {
        colspan: width, scope: "colgroup", class: index === 0 ? "members" : "side", title,
      }, h("span", {}, title)))),
    h("tr", {}, columns.map((column, at) => {
      const isLabelled = column.isMember ? at % memberStep === 0 : (at - members) % step === 0;
      return h("th", { scope: "col", class: `rank${begins(columns, at)}`,
        "aria-label": columnName(column) }, isLabelled && h("span", {}, String(column.first)));
    })));
}

/** The class of the first column of the other ranks, which has a gap before it. */
function begins(columns: HeatColumn[], at: number): string {
  return at > 0 && columns[at - 1]!.isMember && !columns[at]!.isMember ? " side" : "";
}

/** Pointer and arrow keys lead over the cells; one cell at a time is in the order of Tab. */
function lead(grid: HTMLTableElement, say: (row: number, column: number) => void): void {
  const { rows } = grid.tBodies[0]!;
  const cell = (row: number, column: number) => rows[row]!.cells[FIRST_CELL + column]!;
  const columns = rows[0]!.cells.length - FIRST_CELL;
  let focusable = cell(0, 0);
  focusable.tabIndex = 0;
  const visit = (event: Event, then: (row: number, column: number) => void) => {
    const at = (event.target as Element).closest<HTMLTableCellElement>("td.heat");
    if (!at) return;
    then((at.parentElement as HTMLTableRowElement).sectionRowIndex, at.cellIndex - FIRST_CELL);
  };
  grid.addEventListener("pointerover", (event) => visit(event, say));
  grid.addEventListener("focusin", (event) => visit(event, say));
  grid.addEventListener("keydown", (event) => visit(event, (row, column) => {
    const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
      Home: [-columns, 0], End: [columns, 0] }[event.key] ?? [0, 0];
    if (x === 0 && y === 0) return;
    focusable.removeAttribute("tabindex");
    focusable = cell(nearestIndex(row + y!, rows.length), nearestIndex(column + x!, columns));
    focusable.tabIndex = 0;
    focusable.focus();
    event.preventDefault();
  }));
}

function legend(largest: number, text: (value: number) => string, unit: string): HTMLElement {
  const steps = Array.from({ length: 2 * SHADES + 1 }, (_, index) => index - SHADES);
  return h("span", { class: "heat-legend" },
    `${signed(-largest, text)} `,
    steps.map((step) => h("i", { class: `heat ${shadeClass(step)}`, title: step === 0
      ? `less than ${text(shadeBegin(1, largest))}${unit} from the mean`
      : `from ${signed(Math.sign(step) * shadeBegin(Math.abs(step), largest), text)}${unit} on` })),
    ` ${signed(largest, text)}${unit}: difference from the mean of the row; each shade begins at ` +
      "twice the difference of the paler one");
}

function shadeClass(step: number): string {
  return step === 0 ? "even" : `${step > 0 ? "more" : "less"}-${Math.abs(step)}`;
}

function signed(value: number, text: (value: number) => string): string {
  const sign = value > 0 ? "+" : value < 0 ? "\u2212" : "";
  return sign + text(Math.abs(value));
}

function columnName({ first, last, size }: HeatColumn): string {
  return size === 1 ? `rank ${first}` : last - first + 1 === size ? `ranks ${first}-${last}`
    : `${counted(size, "rank")} from ${first} to ${last}`;
}

/** A cell in words: `rank 3: 1.20 s, 0.30 s more than the mean`. */
function sentence(
  column: HeatColumn,
  difference: number,
  mean: number,
  text: (value: number) => string,
  unit: string,
): string {
  const name = columnName(column);
  if (Number.isNaN(difference)) return `${name}: unknown`;
  const than = difference === 0 ? "as much as"
    : `${text(Math.abs(difference))} ${difference > 0 ? "more" : "less"} than`;
  return `${name}: ${text(mean + difference)}${unit}${column.size > 1 ? " on average" : ""}, ` +
    `${than} the mean`;
}
