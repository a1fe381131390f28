/** The contexts of a comparison side by side, and the growth of the chosen one. */

import type { ComparedContext, Comparison, Growth } from "./comparison";
import { type Child, facts, fill, h, table } from "./dom";
import { CLASSES, CLASS_NAMES, log2, ranksText, setupNames } from "./diff_words";
import { capital, count, pathOf, percent, seconds } from "./format";
import { chart, palette } from "./series_chart";

interface Column {
  title: string;
  help: string;
  value: (context: ComparedContext) => number;
  text: (value: number) => string;
}

export function contextsSection(comparison: Comparison): Child {
  const state = { sort: -1, falling: true, search: "", chosen: -1 };
  const columns = columnsOf(comparison);
  state.sort = columns.findIndex(({ title }) => title === "Inclusive");
  state.chosen = comparison.findings[0]?.context ?? 0;
  const body = h("tbody", {});
  const details = h("aside", { class: "panel context", "aria-label": "The chosen context" });
  const heads = columns.map((column, index) => {
    const button = h("button", { type: "button", title: column.help, onclick: () => {
      state.falling = state.sort === index ? !state.falling : true;
      state.sort = index;
      show();
    } }, column.title);
    return h("th", { scope: "col", class: "number", "data-column": index }, button);
  });
  const choose = (index: number) => {
    state.chosen = index;
    for (const row of body.rows) {
      row.setAttribute("aria-selected", String(row.id === `context-${index}`));
    }
    fill(details, chosen(comparison, index));
  };
  const show = () => {
    const { value } = columns[state.sort]!;
    const order = comparison.contexts.map((context, index) => ({ context, index }))
      .filter(({ context }) => matches(context, state.search))
      .sort((one, other) => {
        return (value(other.context) - value(one.context)) * (state.falling ? 1 : -1);
      });
    fill(body, order.map(({ context, index }) => row(context, index, columns, choose)));
    for (const [index, head] of heads.entries()) {
      const sorted = state.falling ? "descending" : "ascending";
      head.setAttribute("aria-sort", index === state.sort ? sorted : "none");
    }
    choose(state.chosen);
  };
  const search = h("input", { id: "search", type: "search", placeholder: "Name or path",
    "aria-label": "Search contexts", oninput: () => {
      state.search = search.value.toLowerCase();
      show();
    } });
  show();
  return h("div", { class: "panel" },
    h("h2", {}, "Contexts"),
    h("p", { class: "controls" }, search, h("span", { class: "aside" },
      "Seconds are inclusive, the mean over ranks. Excess is a fraction of the last set-up's run.")),
    h("div", { class: "scroll" }, h("table", { class: "contexts" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Context"), heads)), body)),
    details,
  );
}

function columnsOf(comparison: Comparison): Column[] {
  const times = setupNames(comparison).map((title, setup): Column => ({
    title,
    help: "Inclusive seconds, mean over ranks",
    value: (context) => context.mean_s[setup] ?? 0,
    text: seconds,
  }));
  const classes = CLASSES.map((name): Column => ({
    title: capital(CLASS_NAMES[name]),
    help: `The part of the inclusive excess that is ${CLASS_NAMES[name]}`,
    value: (context) => context.excess.by_class[name],
    text: percent,
  }));
  return [
    ...times,
    { title: "Inclusive", help: "Excess work of the context and what it calls",
      value: ({ excess }) => excess.inclusive, text: percent },
    { title: "Exclusive", help: "Excess work of the context alone",
      value: ({ excess }) => excess.exclusive, text: percent },
    ...classes,
  ];
}

function matches({ name, path }: ComparedContext, search: string): boolean {
  return name.toLowerCase().includes(search) || pathOf(path).toLowerCase().includes(search);
}

function row(
  context: ComparedContext,
  index: number,
  columns: Column[],
  choose: (index: number) => void,
): HTMLElement {
  return h("tr", { id: `context-${index}`, tabindex: "0", onclick: () => choose(index),
    onfocus: () => choose(index),
    onkeydown: ((event: KeyboardEvent) => {
      const row = event.currentTarget as HTMLElement;
      const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
      if (!(next instanceof HTMLElement)) return;
      next.focus();
      event.preventDefault();
    }) as EventListener },
  h("th", { scope: "row", title: pathOf(context.path) }, context.name, context.rest && " (rest)"),
  columns.map(({ value, text }, column) => {
    const number = value(context);
    return h("td", { class: "number", "data-column": column }, text(number));
  }));
}

function chosen(comparison: Comparison, index: number): Child {
  const context = comparison.contexts[index];
  if (!context) return null;
  const { excess, growth } = context;
  const rest = context.rest ? " without the contexts below it that are listed" : "";
  return [
    h("h3", {}, context.name + rest),
    h("p", { class: "path" }, pathOf(context.path)),
    h("div", { class: "columns" },
      h("div", {},
        table("In each set-up",
          ["Set-up", "Sum over ranks", "Per rank", "Exclusive, sum", "Calls", "Excess"],
          setupNames(comparison).map((name, setup) => [
            name, seconds(context.total_s[setup]), seconds(context.mean_s[setup]),
            seconds(context.exclusive_s[setup]), count(context.calls[setup]),
            setup === 0 ? "" : percent(excess.pairs[setup - 1]),
          ])),
        facts([
          ["Excess of the ensemble", percent(excess.ensemble)],
          ["Exclusive, of the ensemble", percent(excess.ensemble_exclusive)],
          ["Growth", growth ? growthText(growth) : "needs four numbers of ranks"],
        ])),
      growth && growthChart(comparison, context, growth)),
  ];
}

export function growthText({ model, decided, alternatives, quantity }: Growth): string {
  const what = { total_s: "sum over ranks", mean_s: "per rank", seconds: "seconds lost" }[quantity];
  const doubt = decided ? "" : `; the data do not decide, as good: ${alternatives.join(", ")}`;
  return `${model} (${what})${doubt}`;
}

/** The chart ends at this multiple of the largest run: further on, the measured times would look like 0. */
const CHARTED = 4;

/** Measured times, the model through them, and its confidence band. */
function growthChart(comparison: Comparison, context: ComparedContext, growth: Growth): HTMLElement {
  const measured = growth.quantity === "mean_s" ? context.mean_s : context.total_s;
  const x = comparison.setups.map(log2);
  const largest = Math.max(...comparison.setups.map(({ ranks }) => ranks));
  // Only files of earlier versions lack the curve; no page is made from these.
  const curve = growth.curve!.filter(({ ranks }) => ranks <= CHARTED * largest * (1 + 1e-9));
  const curveX = curve.map(log2);
  const colour = palette(0);
  const [from, to] = [curveX[0] ?? 0, curveX[curveX.length - 1] ?? 1];
  return h("div", {},
    chart({
      label: `Growth of ${context.name} with ranks: ${growth.model}`,
      height: 240,
      xRange: [from, to],
      yMax: Math.max(...measured, ...curve.map(({ high_s }) => high_s)),
      xText: ranksText,
      yText: seconds,
      xTitle: "ranks",
      xTicks: [...x, ...growth.predictions.map(log2)].filter((at) => at <= to),
      bands: [{ colour, x: curveX, low: curve.map(({ low_s }) => low_s),
        high: curve.map(({ high_s }) => high_s) }],
      series: [
        { name: "measured", colour: palette(1), x, y: measured, joined: false },
        { name: `model ${growth.model} with its 95 % band`, colour, x: curveX,
          y: curve.map(({ value_s }) => value_s), joined: true, bare: true },
      ],
      tip: (series, index) => {
        if (series === 0) return `${comparison.setups[index]!.ranks} ranks: ${seconds(measured[index])}`;
        const at = curve[index]!;
        return `${Math.round(at.ranks)} ranks: ${seconds(at.value_s)} ` +
          `(${seconds(at.low_s)} to ${seconds(at.high_s)})`;
      },
    }),
    table("Predicted", ["Ranks", "Time", "95 % band"], growth.predictions.map((it) => [
      String(it.ranks), seconds(it.value_s), `${seconds(it.low_s)} to ${seconds(it.high_s)}`,
    ])));
}
