/** Ranks that were chosen at random to keep their samples, and how precisely they stand for all. */

import { type Child, facts, h, table } from "./dom";
import { capital, count, percent, ranks as rankWords, seconds, size } from "./format";
import type { Summary } from "./summary";

/** Maximum number of strata in the table. */
const MAX_STRATA = 50;

/** The panel of the sampled ranks; nothing if no ranks were sampled. */
export function populationPanel({ population, run }: Summary, sentence: string | null): Child {
  if (!population) return null;
  const { strata, confidence, error, achieved_error, seed } = population;
  return h("section", { class: "panel population" },
    h("h2", {}, "Sampled ranks"),
    h("p", {}, capital(sentence ?? "")),
    facts([
      ["Confidence asked for", percent(confidence)],
      ["Error asked for", percent(error)],
      ["Largest error reached", percent(achieved_error)],
      ["Seed of the choice", String(seed)],
    ]),
    table("Strata: clusters of ranks",
      ["Ranks", "Number", "Sampled ranks", "Their number", "Standard deviation of work"],
      strata.slice(0, MAX_STRATA).map((stratum) => [
        rankWords(stratum.ranks, run.ranks), count(size(stratum.ranks)),
        size(stratum.sampled) === 0 ? "none" : rankWords(stratum.sampled, run.ranks),
        count(size(stratum.sampled)), seconds(Math.sqrt(stratum.variance)),
      ])),
    strata.length > MAX_STRATA && h("p", { class: "aside" },
      `${count(strata.length - MAX_STRATA)} further strata are not listed.`));
}
