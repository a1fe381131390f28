/** The data of the page, and where the user is in them. */

import { type Address, format, parse } from "./address";
import {
  type Missing, type RankTimes, type Sentences, type SourceFile, type TimelineData,
  readColumns, readFrames, readMissing, readRankTimes, readSentences, readSources, readTimeline,
} from "./blocks";
import { Contexts } from "./contexts";
import type { Loss, Summary } from "./summary";

/** What a view gets: the run's data, and the address that it shows. */
export class Job {
  readonly summary: Summary;
  missing: Missing = { ranks: null, timeline: null };
  private contextsOnce: Promise<Contexts> | null = null;
  private timelineOnce: Promise<TimelineData | null> | null = null;
  private sourcesOnce: Promise<SourceFile[]> | null = null;
  private rankTimesOnce: Promise<RankTimes | null> | null = null;
  private sentencesOnce: Promise<Sentences> | null = null;
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

  contexts(): Promise<Contexts> {
    this.contextsOnce ??= Promise.all([readColumns(), readFrames()]).then(([columns, frames]) => {
      return new Contexts(columns, frames);
    });
    return this.contextsOnce;
  }

  timeline(): Promise<TimelineData | null> {
    this.timelineOnce ??= readTimeline();
    return this.timelineOnce;
  }

  sources(): Promise<SourceFile[]> {
    this.sourcesOnce ??= readSources();
    return this.sourcesOnce;
  }

  rankTimes(): Promise<RankTimes | null> {
    this.rankTimesOnce ??= readRankTimes();
    return this.rankTimesOnce;
  }

  sentences(): Promise<Sentences> {
    this.sentencesOnce ??= readSentences();
    return this.sentencesOnce;
  }

  /** Replaces the times of single ranks by those of a file that the user has chosen. */
  setRankTimes(times: RankTimes): void {
    this.rankTimesOnce = Promise.resolve(times);
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
    const { loss } = this.address;
    return format({ ...(loss === undefined ? {} : { loss }), ...parts });
  }
}
