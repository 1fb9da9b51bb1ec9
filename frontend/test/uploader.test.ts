import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../src/core/http";
import { Memory } from "../src/core/memory";
import { Rate } from "../src/core/rate";
import { Item, Uploader, type Announced, type Portal } from "../src/core/uploader";

const PART = 10;
const refusal = (status: number, code: string): ApiError => new ApiError({ status, code, detail: code });

/** A fake portal: stores parts, and calls `breaks` before it accepts one. */
class Paper implements Portal {
  readonly files = new Map<number, { path: string; size: number; parts: Map<number, string>; complete: boolean }>();
  sent = 0;
  readonly atOnce = { now: 0, most: 0 };

  constructor(private readonly breaks: (part: number) => Promise<void> | void = () => undefined) {}

  async announce(path: string, size: number): Promise<Announced> {
    const known = [...this.files].find(([, file]) => file.path === path);
    const id = known?.[0] ?? this.files.size + 1;
    const file = known?.[1] ?? { path, size, parts: new Map<number, string>(), complete: false };
    this.files.set(id, file);
    return { id, size, part_size: PART, parts: [...file.parts.keys()], complete: file.complete };
  }

  async sendPart(file: number, part: number, blob: Blob, _sha: string, _progress: (sent: number) => void, signal: AbortSignal): Promise<void> {
    this.atOnce.now += 1;
    this.atOnce.most = Math.max(this.atOnce.most, this.atOnce.now);
    try {
      await this.breaks(part);
      if (signal.aborted) throw new DOMException("Paused.", "AbortError");
      this.files.get(file)?.parts.set(part, await blob.text());
      this.sent += 1;
    } finally {
      this.atOnce.now -= 1;
    }
  }

  async complete(file: number): Promise<{ complete: boolean }> {
    const found = this.files.get(file);
    if (found) found.complete = true;
    return { complete: true };
  }

  async takeOut(file: number): Promise<void> {
    this.files.delete(file);
  }

  content(path: string): string {
    const { parts } = [...this.files.values()].find((file) => file.path === path) ?? { parts: new Map<number, string>() };
    return [...parts].sort(([one], [other]) => one - other).map(([, text]) => text).join("");
  }
}

const digests = { digest: async (blob: Blob) => `sum of ${blob.size}` };
const item = (path: string, content: string): Item => new Item(path, new Blob([content]), 1);
const text = (length: number): string => Array.from({ length }, (_, at) => "0123456789"[at % 7]).join("");

function uploader(portal: Portal): { it: Uploader; until: (done: () => boolean) => Promise<void> } {
  let stir = (): void => undefined;
  const it = new Uploader(portal, digests, () => stir(), async () => undefined);
  const until = async (done: () => boolean): Promise<void> => {
    while (!done()) await new Promise<void>((again) => ((stir = again), setTimeout(again, 5)));
  };
  return { it, until };
}

test("files arrive as they are, some parts at once and no more", async () => {
  const paper = new Paper(() => new Promise((done) => setTimeout(done, 1)));
  const { it, until } = uploader(paper);
  it.add([item("long", text(195)), item("empty", ""), item("a/short", text(3))]);
  await until(() => it.whole);
  assert.deepEqual([paper.content("long"), paper.content("empty"), paper.content("a/short")], [text(195), "", text(3)]);
  assert.ok(paper.atOnce.most > 1 && paper.atOnce.most <= 4);
});

test("what is there is not sent again", async () => {
  const paper = new Paper();
  await paper.announce("long", 95);
  for (const part of [0, 3, 9]) paper.files.get(1)?.parts.set(part, text(95).slice(part * PART, part * PART + PART));
  const { it, until } = uploader(paper);
  it.add([item("long", text(95))]);
  await until(() => it.whole);
  assert.deepEqual([paper.sent, paper.content("long")], [7, text(95)]);
});

test("while it is paused nothing is sent, and then it goes on", async () => {
  let due = true;
  const paper = new Paper((part) => {
    if (part === 3 && due) it.pause();
    due &&= part !== 3;
  });
  const { it, until } = uploader(paper);
  it.add([item("long", text(195))]);
  await until(() => it.paused && paper.atOnce.now === 0);
  const sent = paper.sent;
  await new Promise((done) => setTimeout(done, 20));
  assert.equal(paper.sent, sent);
  it.resume();
  await until(() => it.whole);
  assert.equal(paper.content("long"), text(195));
});

test("an unavailable portal is retried until it is back, and reported meanwhile", async () => {
  let failures = 6;
  const troubles: unknown[] = [];
  const paper = new Paper(() => {
    failures -= 1;
    if (failures > 0) throw failures % 2 ? new TypeError("no answer") : refusal(503, "unavailable");
  });
  const { it, until } = uploader(paper);
  it.add([item("a", text(35))]);
  await until(() => (it.trouble && troubles.push(it.trouble), it.whole));
  assert.deepEqual([paper.content("a"), it.trouble], [text(35), null]);
});

test("a part that arrives damaged is sent again, and given up at last", async () => {
  let damaged = 2;
  const good = uploader(new Paper(() => { if (damaged-- > 0) throw refusal(422, "checksum_mismatch"); }));
  good.it.add([item("a", text(5))]);
  await good.until(() => good.it.whole);
  const bad = uploader(new Paper(() => { throw refusal(422, "checksum_mismatch"); }));
  bad.it.add([item("a", text(5)), item("b", "")]);
  await bad.until(() => !bad.it.busy);
  assert.deepEqual(bad.it.items.map(({ stage }) => stage), ["failed", "whole"]);
});

test("one that is refused holds up no other, and goes when what is in its way is taken out", async () => {
  const paper = new Paper();
  const taken = new ApiError({ status: 409, code: "exists", detail: "There is another.", id: 1 });
  let free = false;
  const announce = paper.announce.bind(paper);
  paper.announce = async (path, size) => {
    if (path === "a" && !free) throw taken;
    return announce(path, size);
  };
  paper.takeOut = async () => void (free = true);
  const { it, until } = uploader(paper);
  it.add([item("a", text(5)), item("b", text(25))]);
  await until(() => !it.busy);
  const [a] = it.items as [Item];
  assert.deepEqual([a.stage, a.other, paper.content("b")], ["failed", 1, text(25)]);
  await it.replace(a);
  await until(() => it.whole);
  assert.equal(paper.content("a"), text(5));
});

test("one that cannot come is left out, with what came of it, and the others are whole", async () => {
  const paper = new Paper(() => { throw refusal(422, "checksum_mismatch"); });
  const { it, until } = uploader(paper);
  it.add([item("bad", text(5)), item("empty", "")]);
  await until(() => !it.busy);
  assert.equal(it.whole, false);
  await it.leaveOut(it.items[0] as Item);
  assert.deepEqual([it.whole, [...paper.files.values()].map(({ path }) => path)], [true, ["empty"]]);
});

test("the rate is that of the last seconds", () => {
  const rate = new Rate();
  rate.note(0, 0);
  assert.equal(rate.secondsFor(10), null);
  for (let second = 1; second <= 20; second += 1) rate.note(second < 10 ? 0 : (second - 9) * 100, second * 1000);
  assert.equal(Math.round(rate.perSecond), 100);
  assert.equal(Math.round(rate.secondsFor(1000) ?? 0), 10);
});

test("a checksum is remembered for the same file alone, and a damaged memory is none", () => {
  const kept = new Map<string, string>();
  const store = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value), removeItem: (key: string) => void kept.delete(key) };
  new Memory(store, "k").keep([{ path: "a", size: 3, modified: 7, sha256: "abc" }]);
  const again = new Memory(store, "k");
  assert.deepEqual([again.sha256Of("a", 3, 7), again.sha256Of("a", 3, 8), again.sha256Of("a", 4, 7), again.sha256Of("b", 3, 7)], ["abc", "", "", ""]);
  kept.set("k", "{broken");
  assert.deepEqual(new Memory(store, "k").all, []);
});
