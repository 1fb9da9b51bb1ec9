/** The rate of a process, from its progress in the last seconds. Pure: times are passed in. */

const WINDOW_MS = 8000;
const LEAST_MS = 500;

export class Rate {
  private samples: [time: number, done: number][] = [];

  /** `done` of all is done at `now` (milliseconds). */
  note(done: number, now: number): void {
    this.samples.push([now, done]);
    while (this.samples.length > 2 && (this.samples[1] as [number, number])[0] < now - WINDOW_MS) this.samples.shift();
  }

  /** After a pause: earlier progress does not count. */
  forget(): void {
    this.samples = [];
  }

  /** Per second; 0 while it is unknown. */
  get perSecond(): number {
    const first = this.samples[0];
    const last = this.samples[this.samples.length - 1];
    if (!first || !last || last[0] - first[0] < LEAST_MS) return 0;
    return Math.max(0, ((last[1] - first[1]) * 1000) / (last[0] - first[0]));
  }

  /** Seconds until `left` more is done; null while it is unknown. */
  secondsFor(left: number): number | null {
    return this.perSecond > 0 ? left / this.perSecond : null;
  }
}
