/**
 * `<log-view job="...">`: the lines of all replicas as a virtual list. Rows have one height, so that the place of a
 * line is a multiplication; only those in view are in the document. Older pages are fetched while scrolling up, and the
 * window slides: it holds at most `WINDOW` lines.
 */
import { parseAnsi, stripAnsi } from "../core/ansi";
import { Cursor } from "../core/cursor";
import { debounce, h } from "../core/dom";
import { ApiError, getJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { dateOf, type Job, type LogLine } from "../core/job";
import { theLive } from "../core/live";
import { matcher } from "../core/match";

interface LogsAnswer {
  lines: LogLine[];
  /** The server has examined all entries from `first` to `last`. */
  first: number;
  last: number;
  more: boolean;
}

const ROW = 18;
const WINDOW = 50_000;
const PAGE = 500;
const OVERSCAN = 20;
const WRAPPED_ROWS = 2000;
const MOST_MATCHES = 1000;
const REPLICA_COLOURS = 8;
// The first colour of each role, and the distance to the colour of its next replica.
const COLOUR_OF_ROLE: Record<string, [number, number]> = { master: [0, 1], pserver: [1, 3], trainer: [2, 1] };
const TROUBLE = /\b(error|exception|traceback|fatal|critical|warn(ing)?)\b/i;

type Show = "all" | "stdout" | "stderr" | "trouble";

export class LogView extends HTMLElement {
  private jobId = "";
  /** The lines that match the filters, in order. */
  private lines: LogLine[] = [];
  private cursor = new Cursor(0);
  /** The first sequence number that was requested; nothing before it is in `lines`. */
  private oldest = 1;
  private moreBefore = false;
  /** Set when the end of the stream is not in the window: the reader is far up. */
  private detached = false;
  private follow = true;
  private unseen = 0;
  private replicas = new Map<string, { colour: number; hidden: boolean }>();
  private show: Show = "all";
  private query = "";
  private regex = false;
  private find = matcher("", false);
  private filtering = false;
  private hits: number[] = [];
  private hit = -1;
  private marked = 0;
  /** Wrapped lines: the line at the centre of the rendered range; 0 at the end. */
  private anchor = 0;
  private loading = false;
  private generation = 0;
  private frame = 0;
  private ended = false;
  private stop: (() => void) | undefined;

  private readonly scroller = h("div", { class: "log-scroller", tabindex: 0, role: "log", "aria-live": "off", "aria-label": gettext("Log") });
  private readonly spacer = h("div", { class: "log-spacer" });
  private readonly rows = h("div", { class: "log-rows" });
  private readonly chips = h("div", { class: "chips", role: "group", "aria-label": gettext("Replicas") });
  private readonly pill = h("button", { class: "log-pill", type: "button", hidden: true, onclick: () => this.toEnd() });
  private readonly note = h("p", { class: "log-note quiet" });
  private readonly search = h("input", { type: "search", placeholder: gettext("Search"), "aria-label": gettext("Search the whole log") });
  private readonly counter = h("span", { class: "quiet counter", role: "status" });
  private readonly followBox = h("input", { type: "checkbox", checked: true });

  connectedCallback(): void {
    this.jobId = this.getAttribute("job") ?? "";
    this.spacer.append(this.rows);
    this.scroller.append(this.spacer);
    this.replaceChildren(this.toolbar(), h("div", { class: "log-pane" }, this.scroller, this.note, this.pill));
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    for (const name of ["wheel", "touchmove", "pointerdown"]) {
      this.scroller.addEventListener(name, (event) => this.readerMoves(event), { passive: true });
    }
    this.addEventListener("keydown", (event) => this.key(event));
    this.search.addEventListener("input", debounce(() => this.searched(), 300));
    new ResizeObserver(() => this.render()).observe(this.scroller);
    const wanted = /^#L(\d+)$/.exec(location.hash);
    if (wanted) void this.goTo(Number(wanted[1])).then(() => this.listen());
    else void this.reload();
    document.addEventListener("regatta:job", (event) => this.jobChanged((event as CustomEvent<Job>).detail));
  }

  disconnectedCallback(): void {
    this.stop?.();
  }

  // --- Data ---------------------------------------------------------------------------------------------------------

  /** Loads from the end of the stream, with the current filters. */
  private async reload(): Promise<void> {
    const generation = ++this.generation;
    this.showText(gettext("Loading…"));
    try {
      const answer = await this.page({ after: -1 });
      if (generation !== this.generation) return;
      this.begin(answer);
      this.detached = false;
      this.cursor = new Cursor(answer.last);
      this.setFollow(true);
      this.render();
      this.listen();
      void this.fillUp();
    } catch {
      this.showText(gettext("The log could not be loaded. Retrying."));
      setTimeout(() => this.isConnected && generation === this.generation && void this.reload(), 3000);
    }
  }

  private begin(answer: LogsAnswer): void {
    this.lines = [];
    this.oldest = answer.first;
    this.moreBefore = answer.more;
    this.meet(answer.lines);
    this.lines = answer.lines.filter((line) => this.passes(line));
  }

  private page(range: { before?: number; after?: number }, limit = PAGE): Promise<LogsAnswer> {
    const query = new URLSearchParams({ limit: String(limit) });
    for (const [name, value] of Object.entries(range)) query.set(name, String(value));
    const shown = [...this.replicas].filter(([, { hidden }]) => !hidden);
    if (shown.length === 1 && this.replicas.size > 1) query.set("replica", (shown[0] as [string, unknown])[0]);
    if (this.filtering && this.query) query.set(this.regex ? "regex" : "q", this.query);
    return getJson<LogsAnswer>(`/api/v1/jobs/${this.jobId}/logs?${query}`);
  }

  private listen(): void {
    this.stop?.();
    this.stop = theLive().subscribe({
      stream: "logs",
      job: this.jobId,
      after: () => this.cursor.after,
      onFrame: (frame) => {
        if (frame.t === "logs") this.take(frame.lines, frame.hi);
        else if (frame.t === "gap") this.cursor.skipTo(frame.to);
        else if (frame.t === "end") this.finish();
        // A cursor of other data (the portal was set up again): start from the available data.
        else if (frame.t === "error" && frame.code === "cursor_beyond_head") void this.reload();
      },
      poll: () => this.catchUp(),
    });
  }

  private take(lines: LogLine[], hi = 0): void {
    const fresh = this.cursor.take(lines, hi);
    this.meet(fresh);
    const passed = fresh.filter((line) => this.passes(line));
    this.matchLive(passed);
    if (!this.follow) this.unseen += passed.length;
    if (!this.detached) {
      this.lines.push(...passed);
      this.slide();
    }
    this.render();
  }

  private async catchUp(): Promise<void> {
    const generation = this.generation;
    for (let more = true; more && generation === this.generation; ) {
      const before = this.cursor.after;
      const answer = await this.page({ after: before });
      this.take(answer.lines, answer.last);
      more = answer.more && this.cursor.after > before;
    }
  }

  private async older(): Promise<void> {
    if (this.loading || !this.moreBefore) return;
    this.loading = true;
    const generation = this.generation;
    try {
      const answer = await this.page({ before: this.oldest });
      if (generation !== this.generation) return;
      this.oldest = answer.first;
      this.moreBefore = answer.more;
      this.meet(answer.lines);
      const passed = answer.lines.filter((line) => this.passes(line));
      this.holdPlace(() => {
        this.lines = [...passed, ...this.lines];
        if (this.lines.length > WINDOW) {
          this.lines.length = WINDOW;
          this.detached = true;
        }
      });
    } finally {
      this.loading = false;
    }
  }

  /** Continues to fetch while a filter leaves the pane half empty. */
  private async fillUp(): Promise<void> {
    const generation = this.generation;
    for (let pages = 0; pages < 20 && this.moreBefore && generation === this.generation; pages += 1) {
      if (this.lines.length * ROW > this.scroller.clientHeight * 2) return;
      await this.older();
      if (this.follow) this.scrollToEnd();
    }
  }

  private slide(): void {
    const over = this.lines.length - WINDOW;
    if (over <= 0 || !this.follow) return;
    this.lines.splice(0, over + PAGE);
    this.oldest = this.lines[0]?.seq ?? this.oldest;
    this.moreBefore = true;
  }

  private finish(): void {
    this.ended = true;
    this.render();
  }

  private jobChanged(job: Job): void {
    const before = this.replicas.size;
    for (const { name } of job.replicas) this.meetOne(name);
    if (this.replicas.size !== before) this.showChips();
  }

  // --- Filters ------------------------------------------------------------------------------------------------------

  private passes(line: LogLine): boolean {
    if (this.replicas.get(line.replica)?.hidden) return false;
    if (this.show === "trouble" && !TROUBLE.test(line.text)) return false;
    if ((this.show === "stdout" || this.show === "stderr") && line.stream !== this.show) return false;
    return !this.filtering || this.query === "" || this.holds(line);
  }

  private holds(line: LogLine): boolean {
    return this.find(stripAnsi(line.text)).length > 0;
  }

  private meet(lines: LogLine[]): void {
    const before = this.replicas.size;
    for (const line of lines) this.meetOne(line.replica);
    if (this.replicas.size !== before) this.showChips();
  }

  private meetOne(name: string): void {
    if (!this.replicas.has(name)) this.replicas.set(name, { colour: colourOf(name), hidden: false });
  }

  private showChips(): void {
    const names = [...this.replicas.keys()].sort();
    this.chips.replaceChildren(
      ...names.map((name) => {
        const { colour, hidden } = this.replicas.get(name) as { colour: number; hidden: boolean };
        return h(
          "button",
          {
            type: "button",
            class: `chip replica-${colour}`,
            "aria-pressed": String(!hidden),
            title: gettext("Click to hide or show. Double-click to show only this replica."),
            onclick: () => this.toggleReplica(name),
            ondblclick: () => this.onlyReplica(name),
          },
          name,
        );
      }),
    );
  }

  private toggleReplica(name: string): void {
    const replica = this.replicas.get(name);
    if (!replica) return;
    replica.hidden = !replica.hidden;
    this.showChips();
    void this.reload();
  }

  private onlyReplica(name: string): void {
    for (const [other, replica] of this.replicas) replica.hidden = other !== name;
    this.showChips();
    void this.reload();
  }

  // --- Search -------------------------------------------------------------------------------------------------------

  private searched(): void {
    const query = this.search.value.trim();
    if (query === this.query) return;
    this.lookFor(query);
  }

  private lookFor(query: string): void {
    this.query = query;
    this.find = matcher(query, this.regex);
    this.hit = -1;
    this.hits = [];
    this.counter.textContent = "";
    if (this.filtering) void this.reload();
    else if (query) void this.locate();
    else this.render();
  }

  /** Searches the whole log on the server. */
  private async locate(): Promise<void> {
    const query = this.query;
    const address = new URLSearchParams({ [this.regex ? "regex" : "q"]: query, after: "0", limit: String(MOST_MATCHES) });
    const answer = await getJson<LogsAnswer>(`/api/v1/jobs/${this.jobId}/logs?${address}`).catch((error: unknown) => this.refused(error));
    if (!answer || query !== this.query) return;
    this.hits = answer.lines.map((line) => line.seq);
    this.count(answer.more);
    if (this.hits.length) await this.goToMatch(0);
    else this.render();
  }

  private refused(error: unknown): null {
    if (error instanceof ApiError) this.counter.textContent = Object.values(error.problem.errors ?? {})[0]?.[0] ?? error.problem.detail;
    return null;
  }

  private count(more = false): void {
    if (!this.query) return;
    const of = `${this.hits.length}${more ? "+" : ""}`;
    this.counter.textContent = this.hits.length ? `${this.hit + 1}/${of}` : gettext("not found");
  }

  private matchLive(lines: LogLine[]): void {
    if (!this.query || this.filtering || this.hits.length >= MOST_MATCHES) return;
    const last = this.hits.at(-1) ?? 0;
    this.hits.push(...lines.filter((line) => line.seq > last && this.holds(line)).map((line) => line.seq));
    if (this.hits.length) this.count();
  }

  private async goToMatch(index: number): Promise<void> {
    if (this.hits.length === 0) return;
    this.hit = (index + this.hits.length) % this.hits.length;
    this.count();
    await this.goTo(this.hits[this.hit] as number);
    this.count();
  }

  /** Scrolls a line into the middle of the pane; fetches the lines around it when they are not loaded. */
  private async goTo(seq: number): Promise<void> {
    this.setFollow(false);
    this.marked = seq;
    if (this.indexOf(seq) < 0) {
      this.generation += 1;
      const [before, after] = await Promise.all([this.page({ before: seq + 1 }), this.page({ after: seq })]);
      this.begin({ ...before, lines: [...before.lines, ...after.lines] });
      this.moreBefore = before.more;
      this.detached = after.more;
      this.cursor.skipTo(after.last);
    }
    this.anchor = seq;
    this.draw();
    this.scroller.scrollTop = Math.max(0, this.offsetOf(seq) - this.scroller.clientHeight / 2);
    this.render();
  }

  private isWrapped(): boolean {
    return this.classList.contains("wrapped");
  }

  /** The offset of a line. Wrapped lines have any height, which is read from the document when they are in it. */
  private offsetOf(seq: number): number {
    if (!this.isWrapped()) return this.indexOf(seq) * ROW;
    return this.rows.querySelector<HTMLElement>(`[data-seq="${seq}"]`)?.offsetTop ?? 0;
  }

  /** The first line in view. */
  private topSeq(): number {
    const { scrollTop } = this.scroller;
    if (!this.isWrapped()) return this.lines[Math.floor(scrollTop / ROW)]?.seq ?? 0;
    const rows = [...this.rows.children] as HTMLElement[];
    return Number(rows.find((row) => row.offsetTop + row.offsetHeight > scrollTop)?.dataset["seq"] ?? 0);
  }

  /** Changes the rendered lines without moving the lines in view. */
  private holdPlace(change: () => void): void {
    const seq = this.topSeq();
    const within = this.scroller.scrollTop - this.offsetOf(seq);
    change();
    this.anchor = seq;
    this.draw();
    if (seq && !this.follow) this.scroller.scrollTop = this.offsetOf(seq) + within;
    this.render();
  }

  private indexOf(seq: number): number {
    let low = 0;
    let high = this.lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.lines[middle] as LogLine).seq < seq) low = middle + 1;
      else high = middle;
    }
    return this.lines[low]?.seq === seq ? low : -1;
  }

  // --- Following ----------------------------------------------------------------------------------------------------

  private setFollow(follow: boolean): void {
    this.follow = follow;
    this.followBox.checked = follow;
    if (!follow) return;
    this.unseen = 0;
    this.anchor = 0;
  }

  private toEnd(): void {
    this.marked = 0;
    if (this.detached) void this.reload();
    else {
      this.setFollow(true);
      this.render();
    }
  }

  private scrollToEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** The reader scrolls: following pauses at once, whatever arrives next. */
  private readerMoves(event: Event): void {
    const up = !(event instanceof WheelEvent) || event.deltaY < 0;
    if (up && this.scroller.scrollHeight > this.scroller.clientHeight) this.setFollow(false);
  }

  private scrolled(): void {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    if (!this.follow && !this.detached && scrollTop + clientHeight >= scrollHeight - ROW / 2) this.setFollow(true);
    if (this.isWrapped() && !this.follow) this.slideWrapped();
    if (this.scroller.scrollTop < clientHeight && !this.follow) void this.older();
    this.render();
  }

  /** Near an edge of the rendered wrapped lines, moves their range. */
  private slideWrapped(): void {
    const [from, to] = this.range();
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    const atTop = scrollTop < clientHeight && from > 0;
    const atEnd = scrollTop + 2 * clientHeight > scrollHeight && to < this.lines.length;
    if (atTop || atEnd) this.holdPlace(() => undefined);
  }

  private key(event: KeyboardEvent): void {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      event.preventDefault();
      this.search.focus();
      this.search.select();
    } else if (event.target === this.search) this.searchKey(event);
    else if (event.target === this.scroller) this.scrollKey(event);
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.key === "Enter") {
      event.preventDefault();
      void this.goToMatch(this.hit + (event.shiftKey ? -1 : 1));
    } else if (event.key === "Escape") {
      this.search.value = "";
      this.searched();
      this.scroller.focus();
    }
  }

  private scrollKey(event: KeyboardEvent): void {
    if (["PageUp", "ArrowUp", "Home"].includes(event.key)) this.setFollow(false);
    if (event.key === "End") {
      event.preventDefault();
      this.toEnd();
    }
  }

  // --- Drawing ------------------------------------------------------------------------------------------------------

  private toolbar(): HTMLElement {
    return h(
      "div",
      { class: "toolbar" },
      this.chips,
      h("span", { class: "spacer" }),
      this.showSelect(),
      h("span", { class: "search-box" }, this.search, this.regexButton(), this.counter, this.step("↑", gettext("Previous match"), -1), this.step("↓", gettext("Next match"), 1)),
      this.toggle(gettext("Filter"), false, (on) => {
        this.filtering = on;
        if (this.query) void this.reload();
      }),
      this.toggle(gettext("Times"), false, (on) => this.classList.toggle("with-times", on)),
      this.toggle(gettext("Wrap"), false, (on) => this.holdPlace(() => this.classList.toggle("wrapped", on))),
      this.followToggle(),
      h("a", { class: "button small", href: `/api/v1/jobs/${this.jobId}/logs/download`, download: true }, gettext("Download")),
    );
  }

  private regexButton(): HTMLElement {
    const label = gettext("Regular expression");
    const button = h("button", { type: "button", class: "icon toggle", "aria-pressed": "false", "aria-label": label, title: label }, ".*");
    button.addEventListener("click", () => {
      this.regex = !this.regex;
      button.setAttribute("aria-pressed", String(this.regex));
      this.lookFor(this.query);
    });
    return button;
  }

  private step(sign: string, label: string, by: number): HTMLElement {
    const onclick = (): void => void this.goToMatch(this.hit + by);
    return h("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick }, sign);
  }

  private showSelect(): HTMLElement {
    const choices: [Show, string][] = [
      ["all", gettext("All lines")],
      ["trouble", gettext("Errors and warnings")],
      ["stderr", "stderr"],
      ["stdout", "stdout"],
    ];
    const select = h("select", {
      class: "small",
      "aria-label": gettext("Line filter"),
      onchange: () => {
        this.show = select.value as Show;
        void this.reload();
      },
    });
    for (const [value, label] of choices) select.append(h("option", { value }, label));
    return select;
  }

  private toggle(label: string, checked: boolean, action: (on: boolean) => void): HTMLElement {
    const input = h("input", { type: "checkbox", checked, onchange: () => action(input.checked) });
    return h("label", { class: "inline" }, input, label);
  }

  private followToggle(): HTMLElement {
    this.followBox.addEventListener("change", () => (this.followBox.checked ? this.toEnd() : this.setFollow(false)));
    return h("label", { class: "inline" }, this.followBox, gettext("Follow"));
  }

  private showText(text: string): void {
    this.note.textContent = text;
    this.note.hidden = text === "";
  }

  private render(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private resize(): void {
    const rows = this.isWrapped() ? 0 : this.lines.length;
    this.spacer.style.height = rows ? `${rows * ROW}px` : "auto";
  }

  private draw(): void {
    this.resize();
    if (this.follow) this.scrollToEnd();
    const [from, to] = this.range();
    const shift = this.isWrapped() ? 0 : from * ROW;
    this.rows.style.transform = `translateY(${shift}px)`;
    this.rows.replaceChildren(...this.lines.slice(from, to).map((line) => this.row(line)));
    if (this.follow && this.isWrapped()) this.scrollToEnd();
    this.showText(this.emptyText());
    this.pill.hidden = this.follow || (this.unseen === 0 && !this.detached);
    this.pill.textContent = this.unseen
      ? fill(gettext("{n} new lines – go to the end"), { n: this.unseen })
      : gettext("Go to the end");
  }

  private emptyText(): string {
    if (this.lines.length) return "";
    if (this.query || this.show !== "all" || [...this.replicas.values()].some((replica) => replica.hidden)) {
      return gettext("No lines match the filters.");
    }
    return this.ended ? gettext("No log lines.") : gettext("No log lines yet. Lines appear here as they are written.");
  }

  /**
   * The range of lines in the document. Wrapped lines have no fixed height: then it is a wide range around the anchor.
   */
  private range(): [number, number] {
    if (this.isWrapped()) {
      const place = this.indexOf(this.anchor);
      const end = place < 0 ? this.lines.length : Math.min(this.lines.length, place + WRAPPED_ROWS / 2);
      return [Math.max(0, end - WRAPPED_ROWS), end];
    }
    const first = Math.floor(this.scroller.scrollTop / ROW);
    const count = Math.ceil(this.scroller.clientHeight / ROW);
    return [Math.max(0, first - OVERSCAN), Math.min(this.lines.length, first + count + OVERSCAN)];
  }

  private row(line: LogLine): HTMLElement {
    const replica = this.replicas.get(line.replica);
    const found = this.query !== "" && this.holds(line);
    return h(
      "div",
      { class: `log-row ${line.stream}${line.seq === this.marked ? " marked" : ""}${found ? " found" : ""}`, "data-seq": line.seq },
      h("a", { class: "log-number", href: `#L${line.seq}`, title: gettext("Copy a link to this line"), onclick: () => this.copyLink(line.seq) }, String(line.seq)),
      h("time", { class: "log-time" }, clock(line.time)),
      h("span", { class: `log-replica replica-${replica?.colour ?? 0}` }, line.replica),
      this.text(line.text),
    );
  }

  private text(text: string): HTMLElement {
    const element = h("span", { class: "log-text" });
    for (const { text: piece, classes } of parseAnsi(text)) {
      const parent = classes.length ? h("span", { class: classes.join(" ") }) : element;
      this.highlight(parent, piece);
      if (parent !== element) element.append(parent);
    }
    return element;
  }

  private highlight(parent: HTMLElement, text: string): void {
    let at = 0;
    for (const [from, to] of this.find(text)) {
      parent.append(text.slice(at, from), h("mark", {}, text.slice(from, to)));
      at = to;
    }
    parent.append(text.slice(at));
  }

  private copyLink(seq: number): void {
    this.marked = seq;
    this.render();
    void navigator.clipboard?.writeText(`${location.origin}${location.pathname}#L${seq}`);
  }
}

/** The colour of a replica: the same on every page and every day, whichever replica prints first. */
function colourOf(name: string): number {
  const [, role, index] = /^(.*?)-?(\d*)$/.exec(name) ?? [];
  const [start, stride] = COLOUR_OF_ROLE[role ?? ""] ?? [3, 1];
  return (start + stride * Number(index ?? 0)) % REPLICA_COLOURS;
}

function clock(time: string | number): string {
  const date = dateOf(time);
  return `${date.toTimeString().slice(0, 8)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

customElements.define("log-view", LogView);
