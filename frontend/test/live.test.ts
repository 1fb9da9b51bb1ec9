import assert from "node:assert/strict";
import { test } from "node:test";
import { Cursor } from "../src/core/cursor";
import type { MetricPoint } from "../src/core/job";
import { theLive, type Frame } from "../src/core/live";

/** A fake socket: stores sent messages, and delivers frames on request. */
class PaperSocket extends EventTarget {
  static readonly OPEN = 1;
  static last: PaperSocket;
  readyState = 0;
  readonly sent: { op: string; id: string; after: number }[] = [];

  constructor() {
    super();
    PaperSocket.last = this;
  }

  open(): void {
    this.readyState = PaperSocket.OPEN;
    this.dispatchEvent(new Event("open"));
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.dispatchEvent(new CloseEvent("close"));
  }

  deliver(frame: Frame): void {
    this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(frame) }));
  }
}

class CloseEvent extends Event {
  readonly code = 1000;
}

const page = new EventTarget();
Object.assign(globalThis, {
  WebSocket: PaperSocket,
  document: page,
  location: { protocol: "http:", host: "portal" },
  addEventListener: page.addEventListener.bind(page),
});

const point = (seq: number): MetricPoint => ({ seq, attempt: 1, key: "cost", step: seq, value: 0, time: "" }) as unknown as MetricPoint;
const frame = (id: string, lo: number, hi: number): Frame => ({
  id,
  t: "metrics",
  lo,
  hi,
  points: Array.from({ length: hi - lo + 1 }, (_, index) => point(lo + index)),
});

test("points on their way to an earlier reader of the stream hide none from the reader that starts again", async () => {
  const seen: number[] = [];
  const follow = (after: number): (() => void) => {
    const cursor = new Cursor(after);
    return theLive().subscribe({
      stream: "metrics",
      job: "job",
      after: () => cursor.after,
      onFrame: (received) => received.t === "metrics" && seen.push(...cursor.take(received.points, received.hi).map(({ seq }) => seq)),
      poll: async () => undefined,
    });
  };
  const stop = follow(0);
  await new Promise((resolve) => setTimeout(resolve, 1));
  const socket = PaperSocket.last;
  socket.open();
  const first = socket.sent.at(-1)?.id as string;
  socket.deliver(frame(first, 1, 3));
  // History was read up to 3; meanwhile 4 to 9 came, and 10 to 12 are in transit.
  stop();
  const again = follow(3);
  const second = socket.sent.at(-1) as { id: string; after: number };
  assert.equal(second.after, 3);
  socket.deliver(frame(first, 10, 12));
  socket.deliver(frame(second.id, 4, 9));
  socket.deliver(frame(second.id, 10, 12));
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
  again();
  page.dispatchEvent(new Event("pagehide"));
});
