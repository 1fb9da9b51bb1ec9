/**
 * Sends files into a version, part by part and several at once; can be paused, and resumes at the same place. It
 * depends neither on the page nor on the network: it calls `Portal`, which may fail in between.
 */
import { ApiError } from "./http";

export const FILES_AT_ONCE = 3;
export const PARTS_AT_ONCE = 4;
/** How often a part or file that arrives damaged is sent again. */
const TRIES = 3;
const PAUSES_MS = [1000, 2000, 5000, 10_000, 30_000] as const;

export interface Announced {
  id: number;
  size: number;
  part_size: number;
  parts: number[];
  complete: boolean;
}

export interface Portal {
  announce(path: string, size: number, sha256: string, signal: AbortSignal): Promise<Announced>;
  sendPart(file: number, part: number, blob: Blob, sha256: string, progress: (sent: number) => void, signal: AbortSignal): Promise<void>;
  /** Repeat the call while it is not complete. */
  complete(file: number, sha256: string, signal: AbortSignal): Promise<{ complete: boolean }>;
  takeOut(file: number): Promise<void>;
}

export interface Digests {
  digest(blob: Blob, progress?: (done: number) => void): Promise<string>;
}

export type Stage = "waiting" | "hashing" | "sending" | "checking" | "whole" | "failed";

/** One file. `hashed` and `sent` are bytes; `other` is the portal's file with the same path. */
export class Item {
  stage: Stage = "waiting";
  hashed = 0;
  sent = 0;
  error: unknown = null;
  other: number | null = null;
  /** Its number in the portal, once it is announced. */
  file: number | null = null;
  readonly moving = new Map<number, number>();

  constructor(readonly path: string, readonly blob: Blob, readonly modified: number, public sha256 = "") {}

  /** Includes bytes in transit. */
  get arrived(): number {
    return [...this.moving.values()].reduce((sum, bytes) => sum + bytes, this.sent);
  }
}

export class Uploader {
  readonly items: Item[] = [];
  /** Why the upload is blocked although it is not paused. */
  trouble: unknown = null;
  paused = false;
  private abort = new AbortController();
  private hashing: Promise<void> = Promise.resolve();
  private lanes = 0;
  private parts = 0;
  private readonly queue: Item[] = [];
  private wake: (() => void)[] = [];
  private readonly turns: (() => void)[] = [];

  constructor(
    private readonly portal: Portal,
    private readonly digests: Digests,
    private readonly changed: () => void,
    private readonly wait: (ms: number) => Promise<void> = (ms) => new Promise((done) => setTimeout(done, ms)),
  ) {}

  add(items: Item[]): void {
    for (const item of items) {
      this.items.push(item);
      this.enqueue(item);
    }
    this.changed();
  }

  /** Retries a failed file. */
  again(item: Item): void {
    Object.assign(item, { stage: "waiting", sent: 0, hashed: 0, error: null, other: null, file: null, sha256: "" });
    this.enqueue(item);
    this.changed();
  }

  /** Removes a file, and its parts in the portal. */
  async leaveOut(item: Item): Promise<void> {
    if (item.file !== null) {
      await this.portal.takeOut(item.file).catch((error: unknown) => {
        if (!isCoded(error, "not_found")) throw error;
      });
    }
    this.items.splice(this.items.indexOf(item), 1);
    this.changed();
  }

  /** Removes the file in its way, then sends it. */
  async replace(item: Item): Promise<void> {
    if (item.other !== null) await this.portal.takeOut(item.other);
    this.again(item);
  }

  pause(): void {
    this.paused = true;
    this.abort.abort();
    this.changed();
  }

  resume(): void {
    this.paused = false;
    this.abort = new AbortController();
    this.stir();
    this.changed();
  }

  /** Retries at once the calls that wait for the portal. */
  stir(): void {
    for (const wake of this.wake.splice(0)) wake();
  }

  get busy(): boolean {
    return this.items.some(({ stage }) => stage !== "whole" && stage !== "failed");
  }

  get whole(): boolean {
    return this.items.every(({ stage }) => stage === "whole");
  }

  private enqueue(item: Item): void {
    // One after the other: hashing uses the disk and one core, and the first file can be sent meanwhile.
    this.hashing = this.hashing.then(() => this.hash(item)).then(() => this.fillLanes());
  }

  private async hash(item: Item): Promise<void> {
    await this.gate();
    if (!item.sha256) {
      this.turn(item, "hashing");
      try {
        item.sha256 = await this.digests.digest(item.blob, (done) => {
          item.hashed = done;
          this.changed();
        });
      } catch (error) {
        this.fail(item, error);
        return;
      }
    }
    item.hashed = item.blob.size;
    this.turn(item, "waiting");
    this.queue.push(item);
  }

  private fillLanes(): void {
    if (!this.queue.length || this.lanes >= FILES_AT_ONCE) return;
    this.lanes += 1;
    void this.lane().finally(() => {
      this.lanes -= 1;
      this.fillLanes();
    });
  }

  private async lane(): Promise<void> {
    for (let item = this.queue.shift(); item; item = this.queue.shift()) {
      await this.transfer(item).catch((error: unknown) => this.fail(item as Item, error));
    }
  }

  private async transfer(item: Item): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.sendWhole(item);
      } catch (error) {
        // The portal's state differs from what it reported: announce the file again.
        if (!isCoded(error, "incomplete", "not_found") || tries === TRIES) throw error;
      }
    }
  }

  private async sendWhole(item: Item): Promise<void> {
    this.turn(item, "sending");
    const { path, blob, sha256 } = item;
    const file = await this.insist((signal) => this.portal.announce(path, blob.size, sha256, signal));
    item.file = file.id;
    if (!file.complete) await this.sendMissing(item, file);
    item.sent = blob.size;
    this.turn(item, "whole");
  }

  private async sendMissing(item: Item, file: Announced): Promise<void> {
    const count = Math.ceil(file.size / file.part_size);
    const lengthOf = (part: number): number => Math.min(file.part_size, file.size - part * file.part_size);
    const there = new Set(file.parts);
    const missing = Array.from({ length: count }, (_, part) => part).filter((part) => !there.has(part));
    item.sent = [...there].reduce((sum, part) => sum + lengthOf(part), 0);
    this.changed();
    let stop = false;
    const lane = async (): Promise<void> => {
      for (let part = missing.shift(); part !== undefined && !stop; part = missing.shift()) {
        const begin = part * file.part_size;
        try {
          await this.sendPart(item, file.id, part, item.blob.slice(begin, begin + lengthOf(part)));
        } catch (error) {
          stop = true;
          throw error;
        }
      }
    };
    const ended = await Promise.allSettled(Array.from({ length: PARTS_AT_ONCE }, lane));
    for (const each of ended) if (each.status === "rejected") throw each.reason;
    this.turn(item, "checking");
    while (!(await this.insist((signal) => this.portal.complete(file.id, item.sha256, signal))).complete);
  }

  private async sendPart(item: Item, file: number, part: number, piece: Blob): Promise<void> {
    while (this.parts >= PARTS_AT_ONCE) await new Promise<void>((done) => this.turns.push(done));
    this.parts += 1;
    const arrive = (sent: number): void => {
      item.moving.set(part, sent);
      this.changed();
    };
    const lose = (): boolean => item.moving.delete(part);
    try {
      for (let tries = 1; ; tries += 1) {
        const sha256 = await this.digests.digest(piece);
        try {
          await this.insist((signal) => this.portal.sendPart(file, part, piece, sha256, arrive, signal), lose);
          break;
        } catch (error) {
          if (!isCoded(error, "checksum_mismatch", "wrong_length") || tries === TRIES) throw error;
        }
      }
      item.sent += piece.size;
    } finally {
      lose();
      this.parts -= 1;
      this.turns.shift()?.();
      this.changed();
    }
  }

  /**
   * Repeats a call until it succeeds or is refused: it waits while paused, and retries while the portal cannot be
   * reached.
   */
  private async insist<Value>(request: (signal: AbortSignal) => Promise<Value>, undone: () => unknown = () => undefined): Promise<Value> {
    for (let failures = 0; ; ) {
      await this.gate();
      const { signal } = this.abort;
      try {
        const value = await request(signal);
        this.trouble = null;
        return value;
      } catch (error) {
        undone();
        if (signal.aborted) continue;
        if (!isPassing(error)) throw error;
        this.trouble = error;
        this.changed();
        const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)] as number;
        failures += 1;
        await Promise.race([this.wait(pause), new Promise<void>((woken) => this.wake.push(woken))]);
      }
    }
  }

  private async gate(): Promise<void> {
    while (this.paused) await new Promise<void>((resumed) => this.wake.push(resumed));
  }

  private turn(item: Item, stage: Stage): void {
    item.stage = stage;
    this.changed();
  }

  private fail(item: Item, error: unknown): void {
    item.error = error;
    item.other = error instanceof ApiError && error.problem.code === "exists" ? (error.problem.id ?? null) : null;
    item.moving.clear();
    this.turn(item, "failed");
  }
}

/** No answer, or an error that may pass soon. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof ApiError)) return error instanceof TypeError;
  const { status, code } = error.problem;
  return status >= 500 || status === 429 || status === 408 || code === "cut_off";
}

function isCoded(error: unknown, ...codes: string[]): boolean {
  return error instanceof ApiError && codes.includes(error.problem.code);
}
