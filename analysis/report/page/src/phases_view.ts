/** Phases: the run between synchronisations of all ranks, and inefficient segments. */

import { type Child, fill, h, table } from "./dom";
import { count, endOf, percent, ranks, seconds, words } from "./format";
import type { Job } from "./job";
import type { Phase } from "./summary";

export async function showPhases(job: Job, place: HTMLElement): Promise<void> {
  const { phases, run } = job.summary;
  const loss = job.loss();
  if (phases.length === 0) {
    place.replaceChildren(h("p", { class: "panel missing" }, "The run has no phases."));
    return;
  }
  const order = [...phases].sort((a, b) => b.duration_s - a.duration_s);
  fill(place,
    h("section", { class: "panel" },
      h("p", {}, "A phase is the code between two synchronisations of all ranks, with all its " +
        "instances. The longest stand first."),
      table("Phases", ["Phase", "From", "To", "Begins at", "Duration", "Of the run", "Instances",
        "Ranks run", "Losses"], order.map((phase) => row(job, phase, phase.id === loss?.phase)))),
    h("section", { class: "panel" }, await segments(job)),
    groups(order, run.ranks),
  );
}

function row(job: Job, phase: Phase, chosen: boolean): Child[] {
  const { losses, run } = job.summary;
  const links = losses.flatMap((loss, index) => {
    return loss.phase !== phase.id ? [] : [h("a", {
      class: `chip lost-${index % 6}`, href: job.link({ view: "verdict", loss: index }),
      title: words(loss.kind),
    }, String(index + 1)), " "];
  });
  const name = chosen ? h("strong", {}, `${phase.id} \u25c2`) : String(phase.id);
  return [
    name,
    phase.begins_after ? endOf(phase.begins_after) : "begin of the run",
    phase.ends_in ? endOf(phase.ends_in) : "end of the run",
    seconds(phase.begin_s), seconds(phase.duration_s),
    percent(phase.duration_s / run.elapsed_s),
    count(phase.instances), phase.kind === "mpmd" ? "different code" : "the same code",
    links.length > 0 ? links : "\u2013",
  ];
}

/** What each row of ICS18's Table 2 says of a segment, and where it sends the reader. */
const ADVICE: Record<number, string> = {
  1: "Much waiting: look which of the waits below are needed.",
  2: "Uneven parts that even each other out before the synchronisation: look where they arise.",
  3: "Load imbalance: look where the uneven work below arises.",
  4: "Uneven parts and much waiting: where work makes others wait, even it out; else look which " +
    "waits are needed.",
  5: "Load imbalance and much waiting: look at the uneven work first, then at the waits.",
};

async function segments(job: Job): Promise<Child> {
  const { segments } = job.summary;
  if (segments.length === 0) {
    return h("p", { class: "missing" }, "No segment between synchronisations is inefficient.");
  }
  const contexts = await job.contexts();
  const name = (node: number) => {
    return contexts.has(node) ? endOf([contexts.frame(node)]) : `context ${node}`;
  };
  return table("Inefficient segments (ICS18, Table 2)",
    ["Phase", "Imbalance at its end", "Imbalance in it", "Waits in it", "Meaning", "Contexts"],
    segments.map((segment) => [
      String(segment.phase), seconds(segment.imb_sync_s), seconds(segment.sum_imb_s),
      seconds(segment.sum_wait_s), meaning(segment.row),
      h("span", {}, segment.nodes.slice(0, 6).map((node, index) => [
        index > 0 && ", ", h("a", { href: job.link({ view: "contexts", node }) }, name(node)),
      ]), segment.nodes.length > 6 && ", ..."),
    ]));
}

function meaning(row: number | null): string {
  const advice = row === null ? undefined : ADVICE[row];
  return advice === undefined ? "\u2013" : `${advice} (row ${row})`;
}

/** Groups of ranks with tasks of their own. */
function groups(phases: Phase[], of: number): Child {
  const rows = phases.flatMap((phase) => phase.groups.length < 2 ? [] :
    phase.groups.map((group) => [
      String(phase.id), ranks(group.ranks, of), seconds(group.mean_work_s),
    ]));
  return rows.length > 0 && h("section", { class: "panel" },
    table("Groups of ranks with different tasks", ["Phase", "Ranks", "Mean work"], rows.slice(0, 200)));
}
