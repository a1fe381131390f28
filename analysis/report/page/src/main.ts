/** The begin of the page: reads the summary, shows the verdict, and then whatever view is asked for. */

import { VIEWS, type View } from "./address";
import { readSummary } from "./blocks";
import { showContexts } from "./contexts_view";
import { h, isForPage } from "./dom";
import { capital, counted, fileName, hosts, seconds } from "./format";
import { Job } from "./job";
import { showLoops } from "./loops_view";
import { showPhases } from "./phases_view";
import { showRanks } from "./ranks_view";
import { showRun } from "./run_view";
import type { Run } from "./summary";
import { themeButton } from "./theme";
import { showTimeline } from "./timeline_view";
import { showVerdict } from "./verdict_view";

/** Fills a place with a view of the job. Called again when the address changes within the view. */
type Show = (job: Job, place: HTMLElement) => void | Promise<void>;

const SHOW: Record<View, Show> = {
  verdict: showVerdict,
  timeline: showTimeline,
  contexts: showContexts,
  ranks: showRanks,
  loops: showLoops,
  phases: showPhases,
  run: showRun,
};

async function start(): Promise<void> {
  const app = document.getElementById("app")!;
  try {
    const summary = await readSummary();
    const place = h("main", { id: "view", tabindex: "-1" });
    const links = new Map<View, HTMLAnchorElement>();
    let shown: View | null = null;
    const show = () => {
      const { view } = job.address;
      for (const [name, link] of links) {
        link.setAttribute("href", job.link({ view: name }));
        if (name === view) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      if (shown !== view) {
        place.replaceChildren();
        window.scrollTo(0, 0);
      }
      shown = view;
      place.dataset.view = view;
      Promise.resolve(SHOW[view](job, place)).catch((error: unknown) => fail(place, error));
    };
    const job = new Job(summary, show);
    for (const view of VIEWS) links.set(view, h("a", { href: `#${view}` }, capital(view)));
    document.title = `${program(summary.run)}: Plimsoll`;
    app.replaceChildren(header(summary.run, [...links.values()]), place);
    window.addEventListener("popstate", () => job.follow());
    let resized = 0;
    window.addEventListener("resize", () => {
      cancelAnimationFrame(resized);
      resized = requestAnimationFrame(show);
    });
    document.addEventListener("themechange", show);
    document.addEventListener("keydown", (event) => shortcut(event, job));
    show();
    performance.mark("verdict");
    await job.readMissing();
    document.documentElement.dataset.ready = "1";
  } catch (error) {
    fail(app, error);
  }
}

function fail(place: HTMLElement, error: unknown): void {
  const reason = error instanceof Error ? error.message : String(error);
  place.replaceChildren(h("p", { class: "problem", role: "alert" },
    `This part of the page cannot be shown: ${reason}. ` +
    "`plimsoll report FILE.plimsoll.json --format html` makes the page again."));
}

function program(run: Run): string {
  return fileName(run.executable) || "unknown program";
}

function measuredRanks(run: Run): string {
  const all = run.world_ranks ?? 0;
  return all > run.ranks ? `${run.ranks} of ${counted(all, "rank")}` : counted(run.ranks, "rank");
}

function header(run: Run, links: HTMLElement[]): HTMLElement {
  const parts = [
    (run.mpi.abi === "none" ? counted(run.threads, "thread") : measuredRanks(run)) +
      ` on ${hosts(run.nodes)}`,
    seconds(run.elapsed_s),
    run.started.replace("T", " ").slice(0, 16),
  ];
  if (run.job) parts.unshift(`job ${run.job}`);
  return h("header", {},
    h("div", { class: "title" },
      h("h1", {}, program(run)),
      h("p", {}, parts.join(" \u00b7 ")),
      themeButton(),
    ),
    h("nav", { "aria-label": "Views" }, links.map((link, index) => {
      link.setAttribute("title", `Key ${index + 1}`);
      return link;
    })),
  );
}

/** Keys 1 to 7 choose a view, / the search. */
function shortcut(event: KeyboardEvent, job: Job): void {
  if (!isForPage(event)) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) {
    location.hash = job.link({ view });
    event.preventDefault();
  } else if (event.key === "/") {
    if (job.address.view !== "contexts") location.hash = job.link({ view: "contexts" });
    setTimeout(() => document.getElementById("search")?.focus(), 50);
    event.preventDefault();
  }
}

void start();
