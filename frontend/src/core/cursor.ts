/** Where a reader of a stream stands, and how long to wait before connecting again. Pure. */

/** Lets every entry through once: what is not after the cursor has been seen already. */
export class Cursor {
  constructor(public after: number) {}

  /** The entries that are new, in order; moves the cursor behind them. `hi` also covers entries that were filtered out. */
  take<Entry extends { seq: number }>(entries: Entry[], hi = 0): Entry[] {
    const fresh: Entry[] = [];
    for (const entry of entries) {
      if (entry.seq <= this.after) continue;
      this.after = entry.seq;
      fresh.push(entry);
    }
    this.after = Math.max(this.after, hi);
    return fresh;
  }

  skipTo(seq: number): void {
    this.after = Math.max(this.after, seq);
  }
}

const FIRST_MS = 500;
const LONGEST_MS = 30_000;
const JITTER = 0.3;

/** The wait before try number `failures` (from 1): doubling from 0.5 s to 30 s, each up to 30 % shorter or longer. */
export function backoff(failures: number, random: number): number {
  const base = Math.min(LONGEST_MS, FIRST_MS * 2 ** (Math.max(1, failures) - 1));
  return Math.round(base * (1 + JITTER * (2 * random - 1)));
}
