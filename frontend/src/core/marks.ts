/** Where an event has its place on a chart. Pure. */
import type { Series } from "./buckets";

/**
 * The first step after a time, or null where none has come yet. `byTime` and `bySteps` are the same points along the two
 * axes: as many lie before the step as lie before the time.
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
