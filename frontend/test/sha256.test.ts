import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";

const own = (...pieces: Uint8Array[]): string => bytesToHex(pieces.reduce((sum, piece) => sum.update(piece), sha256.create()).digest());

test("the vectors of the standard", () => {
  const text = (words: string): Uint8Array => new TextEncoder().encode(words);
  assert.equal(own(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  assert.equal(own(text("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  assert.equal(own(text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
});

test("every length and every cut gives what others give", () => {
  for (let length = 0; length < 200; length += 1) {
    const data = randomBytes(length);
    const cut = length % 7;
    assert.equal(own(data.subarray(0, cut), data.subarray(cut, 60), data.subarray(60)), createHash("sha256").update(data.subarray(0, cut)).update(data.subarray(cut, 60)).update(data.subarray(60)).digest("hex"), String(length));
  }
  const long = randomBytes(3_000_001);
  assert.equal(own(long), createHash("sha256").update(long).digest("hex"));
});
