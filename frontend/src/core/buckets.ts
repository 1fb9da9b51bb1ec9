/**
 * A reduced series that grows: history arrives as buckets from the server, later points are folded into the tail. The
 * width of a bucket is a power of two of the x unit, so that buckets stay in place while the run grows. Pure.
 */

/** Arrays of equal length, one entry per bucket, as in `GET /api/v1/jobs/{id}/metrics`. NaN is null. */
export interface Series {
  x: number[];
  min: (number | null)[];
  max: (number | null)[];
  last: (number | null)[];
  count: number[];
}

export function emptySeries(): Series {
  return { x: [], min: [], max: [], last: [], count: [] };
}

/** The maximum of buckets of a live series; then adjacent ones are merged. */
export const MOST_BUCKETS = 2000;

/** The smallest power of two that spreads `span` over at most `buckets` buckets; 0 (no bucketing) when it is empty. */
export function bucketWidth(span: number, buckets: number): number {
  return span > 0 ? 2 ** Math.ceil(Math.log2(span / buckets)) : 0;
}

/** Adds one point, at the end or (two trainers report out of step) into the bucket that it belongs to. */
export function addPoint(series: Series, x: number, value: number | null, width: number): void {
  const index = placeOf(series, x, width);
  if (index < series.x.length && sameBucket(series.x[index] as number, x, width)) mergeInto(series, index, value);
  else insert(series, index, x, value);
}

function sameBucket(a: number, b: number, width: number): boolean {
  return width > 0 ? Math.floor(a / width) === Math.floor(b / width) : a === b;
}

/**
 * The index of the bucket of `x`, or where to insert it. Points nearly always belong to the end, so the search starts
 * there.
 */
function placeOf(series: Series, x: number, width: number): number {
  let index = series.x.length;
  while (index > 0) {
    const before = series.x[index - 1] as number;
    if (sameBucket(before, x, width)) return index - 1;
    if (before < x) return index;
    index -= 1;
  }
  return 0;
}

function mergeInto(series: Series, index: number, value: number | null): void {
  series.min[index] = least(series.min[index] ?? null, value);
  series.max[index] = most(series.max[index] ?? null, value);
  series.last[index] = value;
  series.count[index] = (series.count[index] ?? 0) + 1;
}

function insert(series: Series, index: number, x: number, value: number | null): void {
  series.x.splice(index, 0, x);
  series.min.splice(index, 0, value);
  series.max.splice(index, 0, value);
  series.last.splice(index, 0, value);
  series.count.splice(index, 0, 1);
}

const least = (a: number | null, b: number | null): number | null => (a === null ? b : b === null ? a : Math.min(a, b));
const most = (a: number | null, b: number | null): number | null => (a === null ? b : b === null ? a : Math.max(a, b));

/** The same series in buckets of `width`, for a long run with too many buckets. */
export function coarsen(series: Series, width: number): Series {
  const result = emptySeries();
  series.x.forEach((x, i) => {
    const end = result.x.length - 1;
    if (end >= 0 && sameBucket(result.x[end] as number, x, width)) {
      result.min[end] = least(result.min[end] ?? null, series.min[i] ?? null);
      result.max[end] = most(result.max[end] ?? null, series.max[i] ?? null);
      result.last[end] = series.last[i] ?? null;
      result.count[end] = (result.count[end] ?? 0) + (series.count[i] ?? 0);
    } else {
      result.x.push(x);
      result.min.push(series.min[i] ?? null);
      result.max.push(series.max[i] ?? null);
      result.last.push(series.last[i] ?? null);
      result.count.push(series.count[i] ?? 0);
    }
  });
  return result;
}

/** How many buckets before its end a series is read again, for late reports. */
const READ_AGAIN = 50;

/**
 * A series that grows while it is drawn. Its buckets have one width throughout (0: each x is its own), which is the
 * server's at first and doubles with the run.
 */
export class LiveSeries {
  constructor(
    private series: Series = emptySeries(),
    private width = 0,
  ) {}

  get length(): number {
    return this.series.x.length;
  }

  /** Fresh arrays: Plotly treats an array that it has drawn before as unchanged. */
  shown(): Series {
    const { x, min, max, last, count } = this.series;
    return { x: [...x], min: [...min], max: [...max], last: [...last], count: [...count] };
  }

  add(x: number, value: number | null): void {
    addPoint(this.series, x, value, this.width);
    this.shrink();
  }

  /** Where to read the series again to be up to date: the edge of a bucket, -Infinity for an empty one. */
  tail(): number {
    const x = this.series.x.at(-READ_AGAIN) ?? this.series.x[0] ?? -Infinity;
    return this.width > 0 ? Math.floor(x / this.width) * this.width : x;
  }

  /** Replaces the end with `tail`, read from `from` on in buckets of `width`. */
  replaceFrom(from: number, tail: Series, width: number): void {
    if (this.width > 0) this.width = Math.max(this.width, width);
    const edge = width > 0 ? Math.floor(from / width) * width : from;
    const kept = this.series.x.findIndex((x) => x >= edge);
    const head = kept < 0 ? this.length : kept;
    const join = <Value>(name: (series: Series) => Value[]): Value[] => [...name(this.series).slice(0, head), ...name(tail)];
    const joined = {
      x: join((series) => series.x),
      min: join((series) => series.min),
      max: join((series) => series.max),
      last: join((series) => series.last),
      count: join((series) => series.count),
    };
    this.series = this.width > 0 ? coarsen(joined, this.width) : joined;
    this.shrink();
  }

  private shrink(): void {
    if (this.length < MOST_BUCKETS) return;
    const span = (this.series.x.at(-1) as number) - (this.series.x[0] as number);
    this.width = Math.max(2 * this.width, bucketWidth(span, MOST_BUCKETS / 2));
    this.series = coarsen(this.series, this.width);
  }
}

/**
 * Exponential moving average with the bias of its start removed (Kingma and Ba 2015, section 3); a bucket of n points
 * weighs as n steps. `weight` in [0, 1); 0 returns the values unchanged. Gaps stay gaps.
 */
export function smooth(values: (number | null)[], counts: number[], weight: number): (number | null)[] {
  if (weight <= 0) return values;
  let average = 0;
  let seen = 0;
  return values.map((value, i) => {
    if (value === null || !Number.isFinite(value)) return null;
    const keep = weight ** Math.max(1, counts[i] ?? 1);
    average = keep * average + (1 - keep) * value;
    seen = keep * seen + (1 - keep);
    return average / seen;
  });
}
