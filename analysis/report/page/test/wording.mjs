// How the page must write numbers: by the rules of the text report, written a second time.

const SPACE = "\u00a0";

export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "unknown";
  const size = Math.abs(value);
  const text = size === 0 ? ["0", "s"]
    : size >= 1000 ? [value.toFixed(0), "s"]
      : size >= 10 ? [value.toFixed(1), "s"]
        : size >= 0.1 ? [value.toFixed(2), "s"]
          : size >= 1e-4 ? [(value * 1e3).toFixed(1), "ms"]
            : size >= 1e-7 ? [(value * 1e6).toFixed(1), "us"]
              : [String(Math.max(Math.round(value * 1e9), 1)), "ns"];
  return text.join(SPACE);
}

/** The two texts that a number may have whose value travels with 24 bits. */
export function rounded(value, text = seconds) {
  return value === null ? ["unknown"] : [text(value), text(Math.fround(value))];
}

export function percent(value) {
  if (value === null) return "unknown";
  const digits = Math.abs(value * 100) < 9.95 ? 1 : 0;
  return `${(value * 100).toFixed(digits)}${SPACE}%`;
}

export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

export function calls(node) {
  if (node.calls_exact) return count(node.calls);
  return node.calls > 0 ? `\u2265${SPACE}${count(node.calls)}` : "unknown";
}
