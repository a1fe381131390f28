/** The verdict of a comparison, its findings, and the scaling of the set-ups. */

import type { ByClass, Comparison, Finding, ScalingRow } from "./comparison";
import { type Child, facts, h, table } from "./dom";
import { pathOf, percent, seconds } from "./format";
import { CLASSES, CLASS_NAMES, log2, ranksText, setupNames } from "./diff_words";
import { chart, palette } from "./series_chart";

export function verdictSection(comparison: Comparison): Child {
  const { verdict, excess, notes, regression } = comparison;
  return [
    h("div", { class: "panel" },
      limit(comparison),
      h("p", { class: "gist" }, verdict.headline),
      classBar(excess.by_class),
      facts([
        ["Excess work of the last set-up", number("excess.fraction", percent(excess.fraction))],
        ["Of all set-ups as an ensemble", number("excess.ensemble", percent(excess.ensemble))],
        ["Core time beyond the expectation", number("excess.seconds", seconds(excess.seconds))],
      ]),
      notes.length > 0 && h("ul", { class: "notes" }, notes.map((note) => h("li", {}, note))),
    ),
    !regression && findings(comparison),
  ];
}

function number(key: string, text: string): HTMLElement {
  return h("span", { "data-key": key }, text);
}

function limit({ verdict }: Comparison): Child {
  if (verdict.fail_above === null) return null;
  const outcome = verdict.failed ? "failed" : "passed";
  return h("p", { class: verdict.failed ? "problem" : "trust" },
    `Limit ${percent(verdict.fail_above)}, measured `,
    number("verdict.value", percent(verdict.value)), `: ${outcome}.`);
}

/** What the excess consists of; gains are not in the bar. */
function classBar(byClass: ByClass): HTMLElement {
  const parts = CLASSES.map((name) => ({ name, fraction: byClass[name] }));
  const lost = parts.filter(({ fraction }) => fraction > 0.0005);
  return h("figure", { class: "time-bar" },
    h("div", { class: "bar", role: "img", "aria-label": "Excess work by class" },
      lost.map(({ name, fraction }) => {
        const part = h("span", { class: `class-${name}` }, fraction > 0.03 ? CLASS_NAMES[name] : "");
        part.style.flexGrow = String(fraction);
        return part;
      })),
    h("figcaption", {}, parts.map(({ name, fraction }) => h("span", {},
      h("i", { class: `swatch class-${name}` }), `${CLASS_NAMES[name]} `,
      h("strong", { "data-key": `excess.by_class.${name}` }, percent(fraction))))),
  );
}

function findings(comparison: Comparison): Child {
  const all = comparison.findings;
  if (all.length === 0) return null;
  const LISTED = 8;
  const card = (finding: Finding, index: number) => {
    const context = comparison.contexts[finding.context];
    return h("li", {}, h("article", { class: "panel card" },
      h("header", {},
        h("span", { class: `number class-${finding.class}` }, String(index + 1)),
        h("h3", {}, context?.name ?? ""),
        h("p", { class: "cost" }, h("strong", {}, percent(finding.excess)), " of the run, ",
          seconds(finding.seconds), " of core time"),
      ),
      h("p", {}, finding.sentence),
      context && h("p", { class: "path" }, pathOf(context.path)),
      context && h("p", { class: "links" },
        h("a", { href: `#context-${finding.context}` }, "In the table of contexts")),
    ));
  };
  return [
    h("h2", {}, "Where it is, the largest first"),
    h("ol", { class: "cards" }, all.slice(0, LISTED).map(card)),
    all.length > LISTED && h("details", {},
      h("summary", {}, `${all.length - LISTED} more`),
      h("ol", { class: "cards" }, all.slice(LISTED).map((it, index) => card(it, index + LISTED)))),
  ];
}

type Column = [keyof ScalingRow, string];

const COLUMNS: Column[] = [
  ["global", "Global efficiency"], ["parallel", "Parallel"], ["load_balance", "Load balance"],
  ["communication", "Communication"], ["computation_scaling", "Computation scaling"],
];

/** What computation scaling consists of, where instructions or cycles were counted. */
const FACTORS: Column[] = [
  ["computation_scaling", "Computation scaling"], ["instruction_scaling", "Instruction scaling"],
  ["ipc_scaling", "IPC scaling"], ["frequency_scaling", "Frequency scaling"],
];

function factorsTable(scaling: ScalingRow[], names: string[]): Child {
  const counted = scaling.some((row) =>
    (row.instruction_scaling ?? row.frequency_scaling ?? null) !== null);
  return counted && table(
    "Computation scaling = instruction scaling \u00d7 IPC scaling \u00d7 frequency scaling",
    ["Set-up", ...FACTORS.map(([, title]) => title), "Instructions per cycle"],
    scaling.map((row, index) => [
      names[index]!, ...FACTORS.map(([key]) => percent(row[key] ?? null)),
      row.ipc?.toFixed(2) ?? "unknown",
    ]));
}

export function scalingSection(comparison: Comparison): Child {
  const { scaling } = comparison;
  const names = setupNames(comparison);
  const rows = scaling.map((row, index) => [
    names[index]!, seconds(row.elapsed_s),
    row.speedup === null ? "unknown" : row.speedup.toFixed(2),
    ...COLUMNS.map(([key]) => percent(row[key] ?? null)),
  ]);
  const differ = new Set(scaling.map(({ ranks }) => ranks)).size > 1;
  return h("div", { class: "panel" }, h("h2", {}, "Scaling"),
    table("Efficiencies as in POP audits: global = parallel \u00d7 computation scaling, " +
      "parallel = load balance \u00d7 communication",
    ["Set-up", "Elapsed", "Speedup", ...COLUMNS.map(([, title]) => title)], rows),
    factorsTable(scaling, names),
    differ && h("div", { class: "columns" }, speedupChart(scaling), efficiencyChart(scaling)));
}

function speedupChart(scaling: ScalingRow[]): HTMLElement {
  const first = scaling[0]!;
  const ideal = scaling.map(({ ranks }) => ranks / first.ranks);
  return chart({
    label: "Speedup over ranks",
    height: 220,
    xRange: [log2(first), log2(scaling[scaling.length - 1]!)],
    yMax: Math.max(...ideal, ...scaling.map(({ speedup }) => speedup ?? 0)),
    xText: ranksText,
    yText: (y) => y.toFixed(1),
    xTitle: "ranks",
    xTicks: scaling.map(log2),
    series: [
      { name: "measured speedup", colour: palette(1), x: scaling.map(log2), joined: true,
        y: scaling.map(({ speedup }) => speedup ?? NaN) },
      { name: "perfect", colour: palette(5), x: scaling.map(log2), y: ideal, joined: true, bare: true },
    ],
    tip: (_, index) => `${scaling[index]!.ranks} ranks: ${(scaling[index]!.speedup ?? NaN).toFixed(2)}`,
  });
}

function efficiencyChart(scaling: ScalingRow[]): HTMLElement {
  return chart({
    label: "Efficiencies over ranks",
    height: 220,
    xRange: [log2(scaling[0]!), log2(scaling[scaling.length - 1]!)],
    yMax: Math.max(1, ...scaling.map(({ computation_scaling }) => computation_scaling ?? 0)),
    xText: ranksText,
    yText: percent,
    xTitle: "ranks",
    xTicks: scaling.map(log2),
    series: COLUMNS.map(([key, name], index) => ({
      name, colour: palette(index), x: scaling.map(log2), joined: true,
      y: scaling.map((row) => row[key] ?? NaN),
    })),
    tip: (series, index) => {
      const [key, name] = COLUMNS[series]!;
      return `${name} on ${scaling[index]!.ranks} ranks: ${percent(scaling[index]![key] ?? null)}`;
    },
  });
}
