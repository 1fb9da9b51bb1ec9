/** One connection of the page for the outputs of all its notebooks; it connects again after a loss. */

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;

type Receive = (frame: never) => void;

export class OutputSocket {
  private readonly followers = new Map<string, { request: () => object; receive: Receive }>();
  private socket: WebSocket | undefined;
  private pause = FIRST_PAUSE;

  constructor(private readonly address: string) {}

  follow(key: string, request: () => object, receive: Receive): void {
    this.followers.set(key, { request, receive });
    if (this.socket) this.restart(key);
    else this.connect();
  }

  /** Follows from what the notebook's request says now: its kernel, path or contents have changed. */
  restart(key: string): void {
    const follower = this.followers.get(key);
    if (follower) this.send({ follow: key, ...follower.request() });
  }

  leave(key: string): void {
    this.followers.delete(key);
    this.send({ leave: key });
  }

  private send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  private connect(): void {
    const socket = new WebSocket(this.address);
    this.socket = socket;
    socket.onopen = () => {
      this.pause = FIRST_PAUSE;
      for (const key of this.followers.keys()) this.restart(key);
    };
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data as string) as { key: string };
      this.followers.get(frame.key)?.receive(frame as never);
    };
    socket.onclose = () => {
      setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    };
  }
}
