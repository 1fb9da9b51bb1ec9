/** The position of a reader in a stream, and the delay before a reconnect. Pure. */

/** Passes every entry once: an entry that is not after the cursor is a duplicate. */
export class Cursor {
  constructor(public after: number) {}

  /**
   * Returns the new entries, in order; moves the cursor behind them. `hi` also covers entries that were filtered out.
   */
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

/** The delay before try number `failures` (from 1): doubling from 0.5 s to 30 s, each up to 30 % shorter or longer. */
export function backoff(failures: number, random: number): number {
  const base = Math.min(LONGEST_MS, FIRST_MS * 2 ** (Math.max(1, failures) - 1));
  return Math.round(base * (1 + JITTER * (2 * random - 1)));
}
