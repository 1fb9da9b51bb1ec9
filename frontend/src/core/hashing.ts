/** Checksums computed by a worker, so that the page stays responsive. */
import type { Answer, Question } from "../hash-worker";

/** The file cannot be read any more: it was changed, moved or removed after it was chosen. */
export class Unreadable extends Error {}

interface Waiting {
  give: (sha256: string) => void;
  refuse: (error: Error) => void;
  progress: (done: number) => void;
}

export class Hasher {
  private readonly worker = new Worker(new URL("./hash-worker.js", import.meta.url), { type: "module" });
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;

  constructor() {
    this.worker.addEventListener("message", (event: MessageEvent<Answer>) => this.hear(event.data));
  }

  /** The SHA-256 of a file or a part of one; `progress` is called with the number of bytes done. Throws Unreadable. */
  digest(blob: Blob, progress: (done: number) => void = () => undefined): Promise<string> {
    this.last += 1;
    const id = this.last;
    return new Promise((give, refuse) => {
      this.waiting.set(id, { give, refuse, progress });
      this.worker.postMessage({ id, blob } satisfies Question);
    });
  }

  private hear({ id, done, sha256, failed }: Answer): void {
    const waiting = this.waiting.get(id);
    if (done !== undefined) waiting?.progress(done);
    if (done !== undefined) return;
    this.waiting.delete(id);
    if (sha256) waiting?.give(sha256);
    else waiting?.refuse(new Unreadable(failed));
  }
}
