// test/buckets.test.ts
import assert from "node:assert/strict";
import { test } from "node:test";

// src/core/buckets.ts
function emptySeries() {
  return { x: [], min: [], max: [], last: [], count: [] };
}
function bucketWidth(span, buckets) {
  return span > 0 ? 2 ** Math.ceil(Math.log2(span / buckets)) : 0;
}
function addPoint(series, x, value, width) {
  const index = placeOf(series, x, width);
  if (index < series.x.length && sameBucket(series.x[index], x, width)) mergeInto(series, index, value);
  else insert(series, index, x, value);
}
function sameBucket(a, b, width) {
  return width > 0 ? Math.floor(a / width) === Math.floor(b / width) : a === b;
}
function placeOf(series, x, width) {
  let index = series.x.length;
  while (index > 0) {
    const before = series.x[index - 1];
    if (sameBucket(before, x, width)) return index - 1;
    if (before < x) return index;
    index -= 1;
  }
  return 0;
}
function mergeInto(series, index, value) {
  series.min[index] = least(series.min[index] ?? null, value);
  series.max[index] = most(series.max[index] ?? null, value);
  series.last[index] = value;
  series.count[index] = (series.count[index] ?? 0) + 1;
}
function insert(series, index, x, value) {
  series.x.splice(index, 0, x);
  series.min.splice(index, 0, value);
  series.max.splice(index, 0, value);
  series.last.splice(index, 0, value);
  series.count.splice(index, 0, 1);
}
var least = (a, b) => a === null ? b : b === null ? a : Math.min(a, b);
var most = (a, b) => a === null ? b : b === null ? a : Math.max(a, b);
function coarsen(series, width) {
  const result = emptySeries();
  series.x.forEach((x, i) => {
    const end = result.x.length - 1;
    if (end >= 0 && sameBucket(result.x[end], x, width)) {
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
function smooth(values, counts, weight) {
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

// test/buckets.test.ts
function seriesOf(points, width = 0) {
  const series = emptySeries();
  for (const [x, value] of points) addPoint(series, x, value, width);
  return series;
}
test("a bucket keeps its least, its most and its last value", () => {
  const series = seriesOf([[0, 5], [1, 9], [2, 1], [3, 4], [4, 7]], 4);
  assert.deepEqual(series, { x: [0, 4], min: [1, 7], max: [9, 7], last: [4, 7], count: [4, 1] });
});
test("without a width every x is its own bucket", () => {
  assert.deepEqual(seriesOf([[1, 2], [2, 3]]).x, [1, 2]);
});
test("a point that comes late goes where it belongs", () => {
  assert.deepEqual(seriesOf([[1, 10], [5, 50], [3, 30]]).last, [10, 30, 50]);
});
test("two trainers at one step share a bucket", () => {
  assert.deepEqual(seriesOf([[7, 2], [7, 4]]), { x: [7], min: [2], max: [4], last: [4], count: [2] });
});
test("a value that is no number is a gap and spoils nothing", () => {
  const series = seriesOf([[0, 1], [1, null], [2, 3]], 4);
  assert.deepEqual([series.min, series.max, series.count], [[1], [3], [3]]);
});
test("the width is a power of two that is wide enough", () => {
  assert.equal(bucketWidth(1e3, 1e3), 1);
  assert.equal(bucketWidth(1001, 1e3), 2);
  assert.equal(bucketWidth(0, 1e3), 0);
});
test("coarse buckets are the same as if they had been coarse from the beginning", () => {
  const points = Array.from({ length: 64 }, (_, i) => [i, i * 37 % 11]);
  assert.deepEqual(coarsen(seriesOf(points, 2), 16), seriesOf(points, 16));
});
test("smoothing starts at the first value, not at zero", () => {
  assert.deepEqual(smooth([4, 4, 4], [1, 1, 1], 0.9).map((value) => Number(value?.toFixed(9))), [4, 4, 4]);
});
test("a bucket of many points weighs as many", () => {
  const many = smooth([0, 8], [1, 10], 0.5)[1];
  const one = smooth([0, 8], [1, 1], 0.5)[1];
  assert.ok(many > one);
});
test("gaps stay gaps when smoothed", () => {
  assert.equal(smooth([1, null, 2], [1, 1, 1], 0.5)[1], null);
});
