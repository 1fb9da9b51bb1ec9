import assert from "node:assert/strict";
import { test } from "node:test";
import { addPoint, bucketWidth, coarsen, emptySeries, LiveSeries, MOST_BUCKETS, smooth } from "../src/core/buckets";

function seriesOf(points: [number, number | null][], width = 0) {
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
  assert.equal(bucketWidth(1000, 1000), 1);
  assert.equal(bucketWidth(1001, 1000), 2);
  assert.equal(bucketWidth(0, 1000), 0);
});

test("coarse buckets are the same as if they had been coarse from the beginning", () => {
  const points = Array.from({ length: 64 }, (_, i): [number, number] => [i, (i * 37) % 11]);
  assert.deepEqual(coarsen(seriesOf(points, 2), 16), seriesOf(points, 16));
});

test("smoothing starts at the first value, not at zero", () => {
  assert.deepEqual(smooth([4, 4, 4], [1, 1, 1], 0.9).map((value) => Number(value?.toFixed(9))), [4, 4, 4]);
});

test("a bucket of many points weighs as many", () => {
  const many = smooth([0, 8], [1, 10], 0.5)[1] as number;
  const one = smooth([0, 8], [1, 1], 0.5)[1] as number;
  assert.ok(many > one);
});

test("gaps stay gaps when smoothed", () => {
  assert.equal(smooth([1, null, 2], [1, 1, 1], 0.5)[1], null);
});

function grown(steps: number, series = new LiveSeries()) {
  for (let step = 0; step < steps; step += 1) series.add(step, step);
  return series;
}

test("what has been drawn is not drawn again: a series that grew shows itself in new arrays", () => {
  const series = grown(3);
  const before = series.shown();
  series.add(3, 3);
  assert.deepEqual([before.x, series.shown().x], [[0, 1, 2], [0, 1, 2, 3]]);
  assert.notEqual(series.shown().last, series.shown().last);
});

test("a run that outgrows its buckets keeps every point, its end, and one width", () => {
  const { x, count, last } = grown(10 * MOST_BUCKETS + 1).shown();
  assert.ok(x.length < MOST_BUCKETS);
  assert.equal(count.reduce((sum, n) => sum + n, 0), 10 * MOST_BUCKETS + 1);
  assert.equal(last.at(-1), 10 * MOST_BUCKETS);
  assert.equal(new Set(count.slice(0, -1)).size, 1);
});

test("points are added to the server's buckets in the server's width, however short the run still is", () => {
  const series = new LiveSeries({ x: [0, 4], min: [0, 4], max: [3, 7], last: [3, 7], count: [4, 4] }, 4);
  for (const x of [8, 9, 10, 11, 12]) series.add(x, x);
  assert.deepEqual([series.shown().x, series.shown().count], [[0, 4, 8, 12], [4, 4, 4, 1]]);
});

test("reading the end again gives the series as if it had been listened to", () => {
  const steps = 3 * MOST_BUCKETS;
  const listening = grown(steps);
  const reading = grown(steps - 100);
  const from = reading.tail();
  const tail = emptySeries();
  for (let step = from; step < steps; step += 1) addPoint(tail, step, step, 0);
  reading.replaceFrom(from, tail, 0);
  assert.deepEqual(reading.shown(), listening.shown());
});
