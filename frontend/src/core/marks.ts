/** Places of events on a chart. Pure. */
import type { Series } from "./buckets";

/**
 * The first step after a time, or null when none has arrived yet. `byTime` and `bySteps` are the same points along the
 * two axes: as many precede the step as precede the time.
 */
export function stepAfter(time: number, byTime: Series, bySteps: Series): number | null {
  let before = 0;
  byTime.x.forEach((at, i) => (before += at <= time ? (byTime.count[i] ?? 0) : 0));
  let passed = 0;
  for (const [i, step] of bySteps.x.entries()) {
    passed += bySteps.count[i] ?? 0;
    if (passed > before) return step;
  }
  return null;
}
