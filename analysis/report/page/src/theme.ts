/** Light and dark: the system's choice, or the user's for this page. */

import { h } from "./dom";

const KEY = "plimsoll-theme";

/** A button that changes between light and dark. */
export function themeButton(): HTMLElement {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = read();
  if (stored) root.dataset.theme = stored;
  const button = h("button", { type: "button", class: "theme" });
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  };
  const announce = () => {
    name();
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    write(root.dataset.theme);
    announce();
  });
  system.addEventListener("change", announce);
  name();
  return button;
}

/** A page from a file may have no storage. */
function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function write(theme: string): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The choice then lasts as long as the page.
  }
}
