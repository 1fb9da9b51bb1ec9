/** What a terminal keeps between connections: its session, the position in its output, and when to acknowledge. Pure. */

/** Output that was shown and not acknowledged; the portal sends at most a few times this much ahead. */
export const ACK_BYTES = 128 * 1024;

export class TerminalCursor {
  session = "";
  /** The position after the last output that arrived; -1: none, so that all kept output is wanted. */
  position = -1;
  private shown = 0;

  /** A connection has begun: its output starts at `from`. */
  begin(session: string, from: number): void {
    this.session = session;
    this.position = from;
    this.shown = 0;
  }

  /** Output has arrived. */
  advance(bytes: number): void {
    this.position += bytes;
  }

  /** Output is no longer kept by the agent. */
  skip(bytes: number): void {
    this.position += bytes;
  }

  /** Output was shown. Returns how much to acknowledge now, or 0. */
  show(bytes: number): number {
    this.shown += bytes;
    if (this.shown < ACK_BYTES) return 0;
    const due = this.shown;
    this.shown = 0;
    return due;
  }

  /** The session has ended: the next connection begins a new one. */
  forget(): void {
    this.session = "";
    this.position = -1;
  }
}

/** Codes of a close after which the same terminal is opened again, with a growing pause. */
export function reconnects(code: number): boolean {
  return [1001, 1006, 1011, 1012, 1013, 4409, 4411].includes(code);
}

/** The address of the socket. */
export function terminalAddress(
  place: { protocol: string; host: string },
  query: Record<string, string | number>,
): string {
  const parts = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return `${place.protocol === "https:" ? "wss" : "ws"}://${place.host}/ws/v1/exec?${parts.join("&")}`;
}
