/** Tables of a comparison: differences of two versions, losses within the runs, the runs. */

import type { Comparison, Difference } from "./comparison";
import { type Child, facts, h, table } from "./dom";
import { growthText } from "./diff_contexts";
import { setupNames, signed } from "./diff_words";
import { percent, seconds, words } from "./format";

export function differencesSection({ regression, verdict }: Comparison): Child {
  if (!regression) return null;
  const row = (difference: Difference): Child[] => [
    difference.significant ? h("strong", {}, difference.name) : difference.name,
    seconds(difference.before_s), seconds(difference.after_s),
    difference.change === null ? "new" : signed(difference.change),
    signed(difference.run_change), percent(difference.error), difference.p_value.toPrecision(2),
    difference.significant ? "differs" : "",
  ];
  const noise = regression.noise === "repetitions"
    ? `the spread of ${regression.repetitions.join(" and ")} runs`
    : regression.noise === "iterations" ? "the iterations within the runs" : "an assumption";
  return h("div", { class: "panel" }, h("h2", {}, "Differences"),
    verdict.sentences.length > 0 && h("ol", {}, verdict.sentences.map((it) => h("li", {}, it))),
    table(`Per rank; noise from ${noise}`,
      ["", "Before", "After", "Change", "Of the run", "Standard error", "Chance", ""],
      [regression.elapsed, ...regression.contexts].map(row)));
}

export function lossesSection(comparison: Comparison): Child {
  if (comparison.losses.length === 0) return null;
  const names = setupNames(comparison);
  return h("div", { class: "panel" }, h("h2", {}, "Losses within the runs"),
    table("Fraction of each run's elapsed time", ["Change", "Loss", "Seen in", "Caused by", ...names, "Growth"],
      comparison.losses.map((loss) => [
        h("span", { class: `change-${loss.change}` }, loss.change), words(loss.kind), loss.symptom,
        loss.cause ?? "", ...names.map((_, setup) => percent(loss.severity[setup])),
        loss.growth ? growthText(loss.growth) : "",
      ])));
}

export function runsSection(comparison: Comparison): Child {
  const { setups, thresholds, expectation } = comparison;
  const names = setupNames(comparison);
  return [
    h("div", { class: "panel" }, h("h2", {}, "Runs"),
      h("p", {}, `Expectation: ${expectation.kind}; ${expectation.reason}.`),
      table("Set-ups and their runs",
        ["Set-up", "Elapsed", "Least", "Most", "Deviation", "Threads", "Nodes", "MPI", "Command", "Summaries"],
        setups.map((setup, index) => [
          names[index]!, seconds(setup.elapsed_s.mean), seconds(setup.elapsed_s.min),
          seconds(setup.elapsed_s.max),
          setup.elapsed_s.stddev === null ? "one run" : seconds(setup.elapsed_s.stddev),
          String(setup.threads), String(setup.nodes), setup.mpi ?? "none",
          [setup.executable, ...setup.arguments].join(" "),
          setup.runs.map((run) => h("div", {}, run)),
        ]))),
    h("details", { class: "panel" }, h("summary", {}, "Thresholds of the verdicts"),
      facts(Object.entries(thresholds).map(([name, value]) => [words(name), String(value)]))),
  ];
}
