/**
 * The one socket of a tab. Subscriptions share it; each has its own cursor and resumes from it after a reconnect, so
 * that nothing is lost or doubled. While no socket is available, subscriptions are polled over HTTP.
 */
import { backoff } from "./cursor";
import type { Job, LogLine, MetricPoint } from "./job";

export type Stream = "logs" | "metrics" | "status" | "jobs";

/** A frame carries the `id` of its subscription; heartbeats have none. */
export type Frame = { id?: string } & (
  | { t: "logs"; lo: number; hi: number; lines: LogLine[] }
  | { t: "metrics"; lo: number; hi: number; points: MetricPoint[] }
  | { t: "status"; job_state: Job }
  | { t: "jobs"; jobs: Job[] }
  | { t: "gap"; from: number; to: number }
  | { t: "end"; hi: number }
  | { t: "error"; code: string; detail: string }
  | { t: "hb" }
);

export interface Subscription {
  stream: Stream;
  job?: string;
  namespace?: string;
  /** The current cursor. */
  after?: () => number;
  onFrame: (frame: Frame) => void;
  /** One poll over HTTP, while there is no socket. */
  poll: () => Promise<void>;
}

export type Connection = "connecting" | "live" | "reconnecting" | "polling";

const SILENCE_MS = 35_000;
const STABLE_MS = 30_000;
const POLL_MS = 3_000;
const FAILURES_BEFORE_POLLING = 5;
const SIGNED_OUT = 4401;

class Live {
  private socket: WebSocket | null = null;
  /** By an id that is never reused: frames in transit to an earlier reader of the same stream are dropped. */
  private readonly subscriptions = new Map<string, Subscription>();
  private made = 0;
  private failures = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private stable: ReturnType<typeof setTimeout> | undefined;
  private poller: ReturnType<typeof setInterval> | undefined;
  private leaving = false;
  state: Connection = "connecting";

  constructor() {
    addEventListener("online", () => this.connectSoon(0));
    addEventListener("pagehide", () => this.leave());
    addEventListener("pageshow", (event) => event.persisted && this.comeBack());
    document.addEventListener("visibilitychange", () => !document.hidden && this.connectSoon(0));
  }

  /** Starts the subscription; the returned function ends it. */
  subscribe(subscription: Subscription): () => void {
    const id = `${subscription.stream}:${++this.made}`;
    this.subscriptions.set(id, subscription);
    if (this.socket?.readyState === WebSocket.OPEN) this.send("sub", id, subscription);
    else this.connectSoon(0);
    return () => this.unsubscribe(id, subscription);
  }

  private unsubscribe(id: string, subscription: Subscription): void {
    if (!this.subscriptions.delete(id)) return;
    if (this.socket?.readyState === WebSocket.OPEN) this.send("unsub", id, subscription);
  }

  private connectSoon(wait: number): void {
    if (this.socket || this.leaving || this.subscriptions.size === 0) return;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), wait);
  }

  private connect(): void {
    if (this.socket || this.leaving) return;
    const socket = new WebSocket(`${location.protocol.replace("http", "ws")}//${location.host}/ws/v1/stream`);
    this.socket = socket;
    this.watch();
    socket.addEventListener("open", () => this.opened());
    socket.addEventListener("message", (event) => socket === this.socket && this.received(String(event.data)));
    socket.addEventListener("close", (event) => this.closed(socket, event.code));
  }

  private opened(): void {
    this.stopPolling();
    this.become("live");
    this.watch();
    this.stable = setTimeout(() => (this.failures = 0), STABLE_MS);
    for (const [id, subscription] of this.subscriptions) this.send("sub", id, subscription);
  }

  private received(text: string): void {
    this.watch();
    const frame = JSON.parse(text) as Frame;
    this.subscriptions.get(frame.id ?? "")?.onFrame(frame);
  }

  private closed(socket: WebSocket, code: number): void {
    if (socket !== this.socket) return;
    this.socket = null;
    clearTimeout(this.watchdog);
    clearTimeout(this.stable);
    if (this.leaving) return;
    // Signed out elsewhere: the server redirects the page to sign-in, once.
    if (code === SIGNED_OUT) return location.reload();
    this.failures += 1;
    if (this.failures >= FAILURES_BEFORE_POLLING) this.startPolling();
    else this.become("reconnecting");
    this.connectSoon(backoff(this.failures, Math.random()));
  }

  /** A socket that is silent for longer than two heartbeats is considered closed, whatever the browser reports. */
  private watch(): void {
    clearTimeout(this.watchdog);
    const socket = this.socket;
    this.watchdog = setTimeout(() => {
      socket?.close();
      // A dead peer never answers the close; do not wait for it.
      if (socket) this.closed(socket, 1006);
    }, SILENCE_MS);
  }

  private startPolling(): void {
    this.become("polling");
    if (this.poller) return;
    const look = (): void => {
      if (document.hidden) return;
      for (const subscription of this.subscriptions.values()) subscription.poll().catch(() => undefined);
    };
    look();
    this.poller = setInterval(look, POLL_MS);
  }

  private stopPolling(): void {
    clearInterval(this.poller);
    this.poller = undefined;
  }

  private become(state: Connection): void {
    this.state = state;
    document.dispatchEvent(new CustomEvent<Connection>("regatta:connection", { detail: state }));
  }

  private send(op: "sub" | "unsub", id: string, { stream, job, namespace, after }: Subscription): void {
    const ask = { op, id, stream, job, namespace };
    this.socket?.send(JSON.stringify(op === "sub" && after ? { ...ask, after: after() } : ask));
  }

  private leave(): void {
    this.leaving = true;
    this.stopPolling();
    this.socket?.close(1000);
  }

  private comeBack(): void {
    this.leaving = false;
    this.socket = null;
    this.connectSoon(0);
  }
}

let live: Live | undefined;

/** The socket of the tab, made when first needed. */
export function theLive(): Live {
  live ??= new Live();
  return live;
}
