/** The data of the page, and where the user is in them. */

import { type Address, format, parse } from "./address";
import {
  type Missing, type RankTimes, readColumns, readFrames, readMissing, readRankTimes,
  readSentences, readSources, readTimeline,
} from "./blocks";
import { Contexts } from "./contexts";
import type { Loss, Summary } from "./summary";

/** A function that reads when it is first called. */
function once<T>(read: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | null = null;
  return () => (result ??= read());
}

/** What a view gets: the run's data, and the address that it shows. */
export class Job {
  readonly summary: Summary;
  missing: Missing = { ranks: null, timeline: null };
  readonly contexts = once(async () => {
    const [columns, frames] = await Promise.all([readColumns(), readFrames()]);
    return new Contexts(columns, frames);
  });
  readonly timeline = once(readTimeline);
  readonly sources = once(readSources);
  readonly sentences = once(readSentences);
  rankTimes = once(readRankTimes);
  address: Address;
  private readonly changed: () => void;

  constructor(summary: Summary, changed: () => void) {
    this.summary = summary;
    this.changed = changed;
    this.address = parse(location.hash);
  }

  async readMissing(): Promise<void> {
    this.missing = await readMissing();
  }

  /** Replaces the times of single ranks by those of a file that the user has chosen. */
  setRankTimes(times: RankTimes): void {
    this.rankTimes = () => Promise.resolve(times);
    this.changed();
  }

  /** The loss that is highlighted. */
  loss(): Loss | null {
    return this.address.loss === undefined ? null : (this.summary.losses[this.address.loss] ?? null);
  }

  /** Takes the address from the browser, after a link or the back button. */
  follow(): void {
    this.address = parse(location.hash);
    this.changed();
  }

  /** Changes parts of the address. `quietly` adds no step to the browser's history. */
  go(parts: Partial<Address>, quietly = false): void {
    this.address = { ...this.address, ...parts };
    const hash = format(this.address);
    if (hash === location.hash) return;
    if (quietly) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    this.changed();
  }

  /** The address of another view, for a link. The loss stays highlighted. */
  link(parts: Partial<Address> & { view: Address["view"] }): string {
    return format({ loss: this.address.loss, ...parts });
  }
}
