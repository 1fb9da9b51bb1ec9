/** Worker: checksums of whole files, and of pieces. A file is read a few MiB at a time, whatever its length. */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

export interface Question {
  id: number;
  blob: Blob;
}

/** Progress (bytes), or at the end the checksum, or the reason of the failure. */
export interface Answer {
  id: number;
  done?: number;
  sha256?: string;
  failed?: string;
}

const PIECE = 4 * 1024 * 1024;
/**
 * Files up to this length are read whole and hashed by the browser, which is faster when available: on encrypted pages.
 * Longer ones would leave buffers behind faster than they are collected.
 */
const SHORT = 1024 * 1024;

addEventListener("message", (event: MessageEvent<Question>) => void digest(event.data));

async function digest({ id, blob }: Question): Promise<void> {
  const answer = (result: Omit<Answer, "id">): void => postMessage({ id, ...result } satisfies Answer);
  try {
    if (blob.size <= SHORT && globalThis.crypto?.subtle) {
      answer({ sha256: bytesToHex(new Uint8Array(await crypto.subtle.digest("SHA-256", await blob.arrayBuffer()))) });
      return;
    }
    const sum = sha256.create();
    for (let at = 0; at < blob.size; at += PIECE) {
      sum.update(new Uint8Array(await blob.slice(at, at + PIECE).arrayBuffer()));
      answer({ done: Math.min(blob.size, at + PIECE) });
    }
    answer({ sha256: bytesToHex(sum.digest()) });
  } catch (error) {
    answer({ failed: String(error) });
  }
}
