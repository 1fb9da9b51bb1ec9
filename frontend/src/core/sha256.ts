/** Incremental SHA-256, which browsers do not provide. Pure. */

const K = new Int32Array(64);
const START = new Int32Array(8);
const BLOCK = 64;

/** The first 32 bits of the fractions of roots of the first primes: the constants of the standard. */
function fillConstants(): void {
  const fraction = (value: number): number => ((value - Math.floor(value)) * 2 ** 32) | 0;
  let found = 0;
  for (let candidate = 2; found < 64; candidate += 1) {
    let prime = true;
    for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) if (candidate % divisor === 0) prime = false;
    if (!prime) continue;
    if (found < 8) START[found] = fraction(Math.sqrt(candidate));
    K[found] = fraction(Math.cbrt(candidate));
    found += 1;
  }
}
fillConstants();

export class Sha256 {
  private readonly state = START.slice();
  private readonly schedule = new Int32Array(64);
  private readonly rest = new Uint8Array(BLOCK);
  private waiting = 0;
  private length = 0;

  update(data: Uint8Array): this {
    this.length += data.length;
    let at = 0;
    if (this.waiting) {
      at = Math.min(BLOCK - this.waiting, data.length);
      this.rest.set(data.subarray(0, at), this.waiting);
      this.waiting += at;
      if (this.waiting < BLOCK) return this;
      this.blocks(this.rest, 0, BLOCK);
      this.waiting = 0;
    }
    const end = data.length - ((data.length - at) % BLOCK);
    this.blocks(data, at, end);
    this.rest.set(data.subarray(end));
    this.waiting = data.length - end;
    return this;
  }

  /** 64 lower-case hexadecimal digits. Nothing can be added after it. */
  hex(): string {
    const bits = this.length * 8;
    const padding = new Uint8Array(((this.waiting < 56 ? 56 : 120) - this.waiting) + 8);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padding.length - 4, bits >>> 0);
    this.update(padding);
    return [...this.state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }

  private blocks(data: Uint8Array, from: number, to: number): void {
    const { state, schedule: w } = this;
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    for (let at = from; at < to; at += BLOCK) {
      for (let i = 0; i < 16; i += 1) w[i] = view.getInt32(at + 4 * i);
      for (let i = 16; i < 64; i += 1) {
        const x = w[i - 15]!;
        const y = w[i - 2]!;
        const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
      }
      let a = state[0]!, b = state[1]!, c = state[2]!, d = state[3]!, e = state[4]!, f = state[5]!, g = state[6]!, h = state[7]!;
      for (let i = 0; i < 64; i += 1) {
        const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + w[i]!) | 0;
        const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
      }
      state[0] = (state[0]! + a) | 0; state[1] = (state[1]! + b) | 0; state[2] = (state[2]! + c) | 0; state[3] = (state[3]! + d) | 0;
      state[4] = (state[4]! + e) | 0; state[5] = (state[5]! + f) | 0; state[6] = (state[6]! + g) | 0; state[7] = (state[7]! + h) | 0;
    }
  }
}
