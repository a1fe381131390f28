/** The verdict: what is lost, why, and whether the measurement can be believed. */

import { type Child, facts, fill, h } from "./dom";
import {
  branch, bytes, calls, capital, count, counted, endOf, frameName, percent, ranks, seconds, words,
} from "./format";
import type { Job } from "./job";
import { windowsChart } from "./series_chart";
import type { Cause, Frame, Loss, Summary, WorkDifference } from "./summary";

const MANY_CAUSES = 3;

export function showVerdict(job: Job, place: HTMLElement): void {
  const { summary } = job;
  const { losses } = summary;
  fill(place,
    h("section", { class: "panel", "aria-label": "Verdict" },
      incomplete(summary),
      h("p", { class: "gist" }, gist(summary)),
      timeBar(job),
    ),
    h("div", { class: "columns" },
      h("section", { class: "panel", "aria-label": "Efficiency" },
        h("h2", {}, "Efficiency"), efficiency(summary)),
      h("section", { class: "panel", "aria-label": "Quality of the measurement" },
        h("h2", {}, "Can this be believed?"), quality(job)),
    ),
    h("section", { "aria-label": "Losses" },
      losses.length > 0 && h("h2", {}, losses.length === 1 ? "The loss" : `The ${losses.length} losses, the worst first`),
      h("ol", { class: "cards" }, losses.map((loss, index) => h("li", {}, card(job, loss, index)))),
    ),
    notes(summary),
  );
}

function incomplete({ run }: Summary): HTMLElement | null {
  if (run.complete) return null;
  const reason = run.incomplete ?? `the run ended by ${run.ended}; this was measured until then`;
  return h("p", { class: "problem" }, `Incomplete: ${reason}.`);
}

/** The verdict in one sentence. */
function gist(summary: Summary): string {
  const { run, losses, collection } = summary;
  const elapsed = seconds(run.elapsed_s);
  const first = losses[0];
  if (first) {
    const all = run.elapsed_s - summary.projection.elapsed_s;
    const part = percent(all / run.elapsed_s);
    const one = losses.length === 1 ? `to one loss, ${words(first.kind)}` : `to ${losses.length} losses`;
    return `${seconds(all)} of ${elapsed} (${part}) go ${one}.`;
  }
  if (collection.samples === 0 && collection.mpi_calls === 0) return "Nothing can be said: the run ended before the first sample.";
  const least = (summary.thresholds?.min_run_periods ?? 25) * 1e-6 * run.period_us.asked;
  if (run.elapsed_s < least) {
    return `The run of ${elapsed} is too short to find losses in; let it last ${seconds(least)} or more.`;
  }
  if (run.mpi.abi === "none") {
    return `The program ran for ${elapsed} without MPI: there are no ranks to compare. ` +
      "The view Contexts shows where the time went.";
  }
  const { parallel } = summary.efficiency;
  if (workIsElsewhere(summary)) {
    return `No verdict on ${elapsed}: the ranks work in threads, and only threads that were ` +
      "created at one place are compared with each other. The notes and the view Contexts show " +
      "what they do.";
  }
  if (parallel !== null && parallel < (summary.thresholds?.min_efficiency ?? 0)) {
    return `No single loss is large, but the ranks compute only ${percent(parallel)} of ` +
      `${elapsed}. The view Contexts shows where they wait.`;
  }
  return `No loss found in ${elapsed}.`;
}

/** The run time as measured: what remains without all losses, and each loss. */
function timeBar(job: Job): Child {
  const { run, losses, projection } = job.summary;
  if (losses.length === 0 || run.elapsed_s <= 0) return null;
  const part = (width: number, style: string, label: string, title: string) => {
    const element = h("span", { class: style, title }, label);
    element.style.flexGrow = String(Math.max(width, 0));
    return element;
  };
  const remains = projection.elapsed_s / run.elapsed_s;
  return h("figure", { class: "time-bar" },
    h("div", { class: "bar", role: "img", "aria-label":
      `${seconds(run.elapsed_s)} as measured, ${seconds(projection.elapsed_s)} without all losses` },
      part(remains, "kept", seconds(projection.elapsed_s), "Run time without all losses"),
      losses.map((loss, index) => part(loss.severity, `lost lost-${index % 6}`,
        loss.severity > 0.04 ? String(index + 1) : "",
        `Loss ${index + 1}: ${words(loss.kind)}, ${seconds(loss.seconds)}`)),
    ),
    h("figcaption", {},
      h("span", {}, "Run time as measured ", h("strong", { "data-key": "run.elapsed_s" },
        seconds(run.elapsed_s))),
      h("span", {}, "without all losses ", h("strong", { "data-key": "projection.elapsed_s" },
        seconds(projection.elapsed_s))),
      losses.length > 1 && losses.slice(0, 4).map((loss, index) => h("span", {},
        `without ${index + 1} alone `, h("strong", {}, seconds(loss.elapsed_without_s)))),
    ),
  );
}

function efficiency(summary: Summary): Child[] {
  const { parallel, load_balance, communication, openmp, windows } = summary.efficiency;
  if (parallel === null && !openmp) {
    return [h("p", {}, summary.run.mpi.abi === "none"
      ? "Without MPI there are no ranks to compare."
      : "The efficiencies are not known: see the notes.")];
  }
  const row = (key: string, name: string, value: number | null, help: string) => [
    h("dt", { title: help }, name),
    h("dd", {},
      h("meter", {
        min: 0, max: 1, low: 0.6, high: 0.8, optimum: 1, value: value ?? 0, "aria-label": name,
      }),
      h("strong", { "data-key": `efficiency.${key}` }, percent(value)),
    ),
  ];
  return [
    h("dl", { class: "meters" },
      row("parallel", "Parallel efficiency", parallel,
        `Mean computation of the ranks / run time: the product of the other ${openmp ? "three" : "two"}`),
      row("load_balance", "= load balance", load_balance,
        "Mean / maximum of the ranks' computation"),
      row("communication", "\u00d7 communication", communication,
        "Maximum of the ranks' computation / run time"),
      openmp && [
        row("openmp.parallel", "\u00d7 OpenMP", openmp.parallel,
          "Thread time that is work, net of MPI: the product of the three below"),
        row("openmp.load_balance", "\u2003= balance of threads", openmp.load_balance,
          "Thread time that is not lost because some threads have less work than others"),
        row("openmp.scheduling", "\u2003\u00d7 scheduling", openmp.scheduling,
          "Thread time that is not lost in regions while no thread works"),
        row("openmp.serialisation", "\u2003\u00d7 serialisation", openmp.serialisation,
          "Thread time that is not lost while one thread works outside of regions"),
      ],
    ),
    windows && windows.length > 1
      ? windowsChart(windows)
      : h("p", { class: "aside" }, "The run was not measured in windows of time."),
  ];
}

/** Whether other threads do the work of an MPI job's ranks, and no loss was found between these. */
function workIsElsewhere({ run, efficiency, losses }: Summary): boolean {
  return run.threads > run.ranks && run.mpi.abi !== "none" && efficiency.parallel === null &&
    !losses.some((loss) => loss.kind === "thread_imbalance");
}

/** Reasons for not believing a verdict, as sentences. */
export function doubtsOf(summary: Summary): string[] {
  const { run, collection, losses } = summary;
  const records = collection.samples + collection.lost;
  const doubts: string[] = [];
  const perRank = collection.samples / Math.max(run.ranks, 1);
  if (perRank < 25 && collection.mpi_calls === 0) {
    doubts.push(`There are only ${count(perRank)} samples for each rank.`);
  }
  if (collection.lost > records / 100) {
    doubts.push(`${percent(collection.lost / records)} of the records were lost.`);
  }
  if (collection.truncated > collection.samples / 20) {
    // Call paths of calls are included; the number of all call paths is not known.
    const [paths, lack] = [counted(collection.truncated, "call path"),
      collection.truncated === 1 ? "lacks its" : "lack their"];
    doubts.push(`${paths} ${lack} outer frames: the callers are not known.`);
  }
  if (collection.marks.off_reason) {
    doubts.push(`Calls were not told apart by marks: ${collection.marks.off_reason}.`);
  }
  if ((collection.unsampled_threads ?? 0) > 0) {
    doubts.push(`${counted(collection.unsampled_threads ?? 0, "thread")} could not be sampled.`);
  }
  if (workIsElsewhere(summary)) {
    doubts.push("The ranks work in threads, and only threads that were created at one place are " +
      "compared with each other: losses between others are not found.");
  }
  if (!run.complete) doubts.push("The run did not end regularly.");
  // Other programs may have used the cores.
  const crowded = losses.find((loss) => loss.kind === "oversubscription");
  if (crowded) {
    doubts.push(`Ranks waited ${seconds(crowded.seconds)} each for a core: how long they wait for ` +
      "each other is not the program's own.");
  }
  return doubts;
}

/** The cost of the measurement in the words of the text report, once they are decoded. */
function cost(job: Job): HTMLElement {
  const place = h("span");
  void job.sentences().then((sentences) => { place.textContent = sentences.cost; });
  return place;
}

/** What a user checks before believing a verdict. */
function quality(job: Job): Child[] {
  const { run, collection } = job.summary;
  const doubts = doubtsOf(job.summary);
  return [
    h("p", { class: doubts.length > 0 ? "doubt" : "trust" },
      doubts.length > 0 ? doubts.join(" ") : "Yes: no record that matters was lost."),
    facts([
      ["Samples", h("span", {}, h("span", { "data-key": "collection.samples" },
        count(collection.samples)), ", one per ", seconds(run.period_us.asked * 1e-6))],
      ["Lost", h("span", { "data-key": "collection.lost" }, count(collection.lost))],
      ["Without outer frames", h("span", { "data-key": "collection.truncated" },
        count(collection.truncated))],
      ["MPI calls", h("span", { "data-key": "collection.mpi_calls" },
        count(collection.mpi_calls))],
      ["Cost", cost(job)],
      ["Analysis at the end", seconds(collection.finalize_s)],
      ["Memory per rank", bytes(collection.memory_bytes)],
    ]),
    h("p", { class: "aside" }, h("a", { href: job.link({ view: "run" }) }, "All of the measurement")),
  ];
}

/** A loss: cost, who waits, who is slow, the path to the cause, and what to do. */
function card(job: Job, loss: Loss, index: number): HTMLElement {
  const of = job.summary.run.ranks;
  const chosen = job.address.loss === index;
  const first = loss.causes[0];
  const symptom = loss.symptom.node;
  return h("article", {
    class: chosen ? "panel card chosen" : "panel card", "data-loss": index,
    "aria-label": `Loss ${index + 1}`,
  },
    h("header", {},
      h("span", { class: `number lost-${index % 6}` }, String(index + 1)),
      h("h3", {}, capital(words(loss.kind))),
      h("span", { class: "cost" },
        h("strong", { "data-key": `losses.${index}.seconds` }, seconds(loss.seconds)), " lost, ",
        h("span", { "data-key": `losses.${index}.severity` }, percent(loss.severity)),
        " of the run time"),
    ),
    h("dl", { class: "story" },
      h("dt", {}, "Seen in"),
      h("dd", {}, seenIn(loss, of), path(job, loss.symptom.path, symptom, index)),
      first && [
        h("dt", {}, "Caused by"),
        h("dd", {}, within(loss, first), causedBy(loss, first, of),
          path(job, first.path, first.node, index),
          first.difference &&
            h("p", { class: "difference" }, differenceText(first.difference, of))),
      ],
      loss.node && [h("dt", {}, "Caused by"), h("dd", {}, slowPlace(loss, of))],
      !first && loss.kind === "wait_for_partner" && [
        h("dt", {}, "Caused by"), h("dd", {}, "not known"),
      ],
      loss.causes.length > 1 && [h("dt", {}, "Also"), h("dd", {}, further(job, loss, index))],
      loss.holders && loss.holders.length > 0 && [
        h("dt", {}, "Held by"),
        h("dd", {}, loss.holders.map(({ path: frames, node, share }) => {
          return [`${percent(share)} of the waiting`, path(job, frames, node, index)];
        })),
      ],
      partners(loss).length > 0 && [
        h("dt", {}, "Waits for"),
        h("dd", {}, partners(loss).map(({ ranks: list, share }) => {
          return `${ranks(list, of)} (${percent(share)})`;
        }).join(", "), loss.pattern ? `: ${words(loss.pattern)}` : ""),
      ],
      loss.origin && [
        h("dt", {}, "Begins with"),
        h("dd", {}, `${ranks(loss.origin.ranks, of)}, which computed meanwhile (${percent(loss.origin.share)} of the waiting)`,
          loss.origin.node !== null && [": ", h("a", {
            href: job.link({ view: "contexts", loss: index, node: loss.origin.node }),
          }, "what these computed")]),
      ],
      loss.when && [h("dt", {}, "When"), h("dd", {}, when(loss))],
      h("dt", {}, "Advice"),
      h("dd", { class: "advice" }, loss.advice),
    ),
    h("p", { class: "links" },
      h("a", { href: job.link({ view: "timeline", loss: index }) }, "When: timeline"),
      h("a", { href: job.link({ view: "ranks", loss: index, node: first?.node ?? symptom }) },
        "Who: ranks"),
      h("a", { href: job.link({ view: "contexts", loss: index, node: first?.node ?? symptom }) },
        "Where: call paths"),
      h("a", { href: job.link({ view: "phases", loss: index }) }, "Phase"),
      job.summary.loops.length > 0 &&
        h("a", { href: job.link({ view: "loops", loss: index }) }, "Iterations: loops"),
    ),
  );
}

/** The ranks that are waited for: without the only waiting rank, which does not wait for itself. */
export function partners({ waits_for, waiting_ranks }: Loss): NonNullable<Loss["waits_for"]> {
  const isItself = (list: string) => /^\d+$/.test(list) && list === waiting_ranks;
  return (waits_for ?? []).filter((it) => !isItself(it.ranks));
}

function when({ when }: Loss): string {
  if (!when) return "";
  const span = `${seconds(when.from_s)} to ${seconds(when.to_s)}`;
  return when.kind === "confined" ? `only from ${span}` : `${when.kind}, from ${span}`;
}

/** Where a loss shows, as in the text report. */
function seenIn(loss: Loss, of: number): string {
  const { symptom } = loss;
  const place = endOf(symptom.path);
  const mean = `${seconds(symptom.mean_s)} on average`;
  const waiters = ranks(loss.waiting_ranks, of);
  const each = symptom.per_call_s === null ? "" : `, ${seconds(symptom.per_call_s)} each`;
  const number = calls(symptom.calls, symptom.calls_exact);
  switch (loss.kind) {
    case "frequent_communication":
    case "large_message":
    case "large_io": {
      const moved = symptom.bytes === null ? "" : `, ${bytes(symptom.bytes)} in all`;
      return `${number} calls of ${place}${each}${moved}: ${mean}`;
    }
    case "oversubscription":
      return `${place}: runnable threads wait for a core, ${seconds(symptom.max_s)} at most`;
    case "wait_for_partner":
      return [
        `${place}, where ${waiters} ${waits(loss)} (${seconds(symptom.max_s)} at most, ${mean})`,
        ...(loss.also_in ?? []).map((it) => `${endOf(it.path)} (${seconds(it.mean_s)} on average)`),
      ].join("; also ");
    default:
      return `${place}, where ${waiters} ${waits(loss)} ` +
        `(${seconds(symptom.max_s)} at most, ${mean})`;
  }
}

function waits(loss: Loss): string {
  return /^\d+$/.test(loss.waiting_ranks) ? "waits" : "wait";
}

/** The function that the cause lies in, as far as the symptom does not: the one that users know. */
function within(loss: Loss, cause: Cause): Child {
  const frame = branch(cause.path, loss.symptom.path);
  return frame && [h("strong", {}, frameName(frame)), ": "];
}

function slowPlace(loss: Loss, of: number): string {
  const slow = ranks(loss.slow_ranks, of);
  const place = loss.kind === "slow_node" ? `node ${loss.node} (${slow})`
    : `the core of ${slow} on ${loss.node}`;
  const longer = loss.factor ? `${loss.factor.toFixed(2)} times as long` : "longer";
  return `all work takes ${longer} on ${place} as elsewhere`;
}

function causedBy(loss: Loss, cause: Cause, of: number): string {
  const name = endOf(cause.path);
  const times = `${seconds(cause.max_s)} at most, ${seconds(cause.mean_s)} on average`;
  if (loss.kind === "serialization" && loss.by_turns) {
    return `${name}, where only one rank at a time works (${seconds(cause.mean_s)} on average)`;
  }
  if (loss.kind === "serialization") {
    return `${name}, where only ${ranks(loss.slow_ranks, of)} works (${seconds(cause.max_s)})`;
  }
  if (loss.by_turns) {
    return `${name}, which takes longer each time on another rank (${seconds(cause.mean_s)} on ` +
      "average)";
  }
  if (loss.kind === "load_imbalance" || loss.kind === "group_imbalance") {
    return `${name}, which takes longer on ${ranks(loss.slow_ranks, of)} (${times})`;
  }
  const share = `${percent(cause.share)} of the loss`;
  if (loss.kind === "wait_for_partner" && loss.slow_ranks !== "") {
    const times = loss.origin?.changes ? " at different times" : "";
    return `${name} on ${ranks(loss.slow_ranks, of)}${times}, while others wait (${share})`;
  }
  return `${name} (${share})`;
}

function differenceText(difference: WorkDifference, of: number): string {
  const slow = ranks(difference.ranks, of);
  const work = `${difference.instructions_factor.toFixed(2)} times the instructions`;
  const time = `${difference.time_factor.toFixed(2)} times the time`;
  const [ipc, others] = [difference.ipc.toFixed(2), difference.ipc_of_others.toFixed(2)];
  return difference.kind === "more_work"
    ? `More work on ${slow}: ${work} of the others in ${time} (${ipc} instructions per cycle, ` +
      `the others ${others}).`
    : `Slower work on ${slow}: ${ipc} instructions per cycle, the others ${others} ` +
      `(${work} in ${time}).`;
}

/** A call path; each frame leads to its context. */
function path(job: Job, frames: Frame[], node: number, loss: number): HTMLElement {
  const last = frames.length - 1;
  return h("p", { class: "path" }, frames.map((frame, index) => [
    index > 0 && " \u203a ",
    index === last
      ? h("a", { href: job.link({ view: "contexts", loss, node }) }, frameName(frame))
      : frameName(frame),
  ]));
}

function further(job: Job, loss: Loss, index: number): Child {
  const rest = loss.causes.slice(1);
  return h("details", { open: rest.length <= MANY_CAUSES },
    h("summary", {}, counted(rest.length, "further cause") +
      (loss.evened_out ? "; these lie on different ranks and partly even each other out" : "")),
    h("ul", {}, rest.map((cause) => h("li", {},
      within(loss, cause),
      h("a", { href: job.link({ view: "contexts", loss: index, node: cause.node }) },
        endOf(cause.path)),
      loss.evened_out
        ? ` (${seconds(cause.seconds)} uneven)`
        : ` (${percent(cause.share)} of the loss, ${seconds(cause.seconds)})`))),
  );
}

function notes({ notes }: Summary): HTMLElement | null {
  if (!notes || notes.length === 0) return null;
  return h("section", { class: "panel", "aria-label": "Notes" },
    h("h2", {}, "Notes"), h("ul", {}, notes.map((note) => h("li", {}, note))));
}
