/** The page of `plimsoll diff`: one scroll, the verdict first. */

import { readComparison } from "./blocks";
import type { Comparison } from "./comparison";
import { type Child, h, isForPage } from "./dom";
import { contextsSection } from "./diff_contexts";
import { differencesSection, lossesSection, runsSection } from "./diff_tables";
import { scalingSection, verdictSection } from "./diff_findings";
import { fileName } from "./format";
import { themeButton } from "./theme";

async function start(): Promise<void> {
  const app = document.getElementById("app")!;
  try {
    const comparison = await readComparison();
    // One button for all times that the page is drawn: it listens to the system's theme.
    const theme = themeButton();
    show(app, comparison, theme);
    // Charts take their colours from the theme.
    document.addEventListener("themechange", () => show(app, comparison, theme));
    document.addEventListener("keydown", shortcut);
    document.documentElement.dataset.ready = "1";
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    app.replaceChildren(h("p", { class: "problem", role: "alert" },
      `This page cannot be shown: ${reason}. \`plimsoll diff ... --format html\` makes it again.`));
  }
}

function show(app: HTMLElement, comparison: Comparison, theme: HTMLElement): void {
  const sections: [string, string, Child][] = [
    ["verdict", "Verdict", verdictSection(comparison)],
    ["differences", "Differences", differencesSection(comparison)],
    ["scaling", "Scaling", scalingSection(comparison)],
    ["contexts", "Contexts", contextsSection(comparison)],
    ["losses", "Losses", lossesSection(comparison)],
    ["runs", "Runs", runsSection(comparison)],
  ];
  const shown = sections.filter(([, , content]) => content);
  document.title = `${programs(comparison)}: Plimsoll`;
  const hasFocus = document.activeElement === theme;
  app.replaceChildren(
    header(comparison, theme, shown.map(([id, title], index) => {
      return h("a", { href: `#${id}`, title: `Key ${index + 1}` }, title);
    })),
    h("main", {}, shown.map(([id, title, content]) => {
      return h("section", { id, "aria-label": title, tabindex: "-1" }, content);
    })),
  );
  if (hasFocus) theme.focus();
}

function programs({ setups }: Comparison): string {
  const names = new Set(setups.map(({ executable }) => fileName(executable)));
  return [...names].join(", ") || "unknown program";
}

const EXPECTED = {
  strong: "strong scaling", weak: "weak scaling", same: "equal time", work: "a given amount of work",
};

function header(comparison: Comparison, theme: HTMLElement, links: HTMLElement[]): HTMLElement {
  const { setups, expectation } = comparison;
  const runs = setups.reduce((sum, { runs }) => sum + runs.length, 0);
  const ranks = [...new Set(setups.map((setup) => setup.ranks))].join(", ");
  return h("header", {},
    h("div", { class: "title" },
      h("h1", {}, programs(comparison)),
      h("p", {}, `${runs} runs on ${ranks} ranks \u00b7 ${EXPECTED[expectation.kind]} expected ` +
        `(${expectation.reason})`),
      theme,
    ),
    h("nav", { "aria-label": "Sections" }, links),
  );
}

/** Keys 1 to 6 lead to a section, / to the search. */
function shortcut(event: KeyboardEvent): void {
  if (!isForPage(event)) return;
  const section = document.querySelectorAll<HTMLElement>("main > section")[Number(event.key) - 1];
  if (section) {
    location.hash = section.id;
    section.focus();
    event.preventDefault();
  } else if (event.key === "/") {
    document.getElementById("search")?.focus();
    event.preventDefault();
  }
}

void start();
