/** One connection of the page for the outputs of all its notebooks; it connects again after a loss. */

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;

type Receive = (frame: never) => void;

interface Follower {
  request: () => object;
  receive: Receive;
  // Answers to an earlier request still arrive after a later one.
  generation: number;
}

export class OutputSocket {
  private readonly followers = new Map<string, Follower>();
  private socket: WebSocket | undefined;
  private pause = FIRST_PAUSE;

  constructor(private readonly address: string) {}

  follow(key: string, request: () => object, receive: Receive): void {
    this.followers.set(key, { request, receive, generation: 0 });
    if (this.socket) this.restart(key);
    else this.connect();
  }

  /** Follows from what the notebook's request says now: its kernel, path or contents have changed. */
  restart(key: string): void {
    const follower = this.followers.get(key);
    if (!follower) return;
    this.send({ leave: `${key} ${follower.generation}` });
    follower.generation += 1;
    this.send({ follow: `${key} ${follower.generation}`, ...follower.request() });
  }

  leave(key: string): void {
    const follower = this.followers.get(key);
    this.followers.delete(key);
    if (follower) this.send({ leave: `${key} ${follower.generation}` });
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
      const [key = "", generation] = frame.key.split(" ");
      const follower = this.followers.get(key);
      if (follower?.generation === Number(generation)) follower.receive(frame as never);
    };
    socket.onclose = () => {
      setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    };
  }
}
