/**
 * `<data-upload data-dataset="team/mine" data-page="..." [data-version="3"]>`: files and folders, dropped or chosen,
 * are sent in parts into a version, which is then sealed. After a reload the page requests the same files again.
 */
import { h } from "../core/dom";
import { chosen, dropped, type Choice, type Found } from "../core/dropped";
import { Hasher, Unreadable } from "../core/hashing";
import { deleteJson, getJson, postJson, putBytes } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { Memory } from "../core/memory";
import { bytes } from "../core/numbers";
import { messageOf } from "../core/problem";
import { Rate } from "../core/rate";
import { duration } from "../core/time";
import { Item, Uploader, type Announced, type Portal, type Stage } from "../core/uploader";

interface Version {
  number: number;
  state: string;
  why: string;
}

const SHOWN = 200;
const PAINT_MS = 150;
const LOOK_MS = 1000;
const STAGES: Record<Stage, () => string> = {
  waiting: () => gettext("queued"),
  hashing: () => gettext("computing checksum"),
  sending: () => gettext("uploading"),
  checking: () => gettext("verifying"),
  whole: () => gettext("uploaded"),
  failed: () => gettext("failed"),
};

/** A progress bar: the completed part, the rate, and the remaining time. */
class Sum {
  readonly rate = new Rate();
  private readonly bar = h("progress", { max: 1, value: 0 });
  private readonly output = h("output");
  readonly element: HTMLElement;

  constructor(label: string) {
    this.bar.setAttribute("aria-label", label);
    this.element = h("div", { class: "upload-sum" }, h("span", {}, label), this.bar, this.output);
  }

  show(done: number, all: number, running: boolean): void {
    this.bar.value = all ? done / all : 0;
    const amount = fill(gettext("{done} of {all}"), { done: bytes(done), all: bytes(all) });
    this.output.textContent = [amount, ...(running && done < all ? this.speed(all - done) : [])].join(" · ");
  }

  private speed(left: number): string[] {
    const seconds = this.rate.secondsFor(left);
    if (seconds === null) return [];
    const rate = fill(gettext("{rate}/s"), { rate: bytes(this.rate.perSecond) });
    return [rate, fill(gettext("{time} left"), { time: duration(seconds) })];
  }
}

export class DataUpload extends HTMLElement {
  private readonly name = this.getAttribute("data-dataset") ?? "";
  private version: number | null = Number(this.getAttribute("data-version")) || null;
  private readonly base = `/api/v1/datasets/${this.name.split("/").map(encodeURIComponent).join("/")}`;
  private readonly hasher = new Hasher();
  private readonly uploader = new Uploader(this.portal(), this.hasher, () => this.paintSoon());
  private memory: Memory | null = this.version === null ? null : this.memoryOf(this.version);
  private readonly rows = new Map<Item, FileRow>();
  private painting = false;
  private sealing = false;
  /** The status that is shown: why the upload is blocked, and whether all files are complete. */
  private trouble: unknown = null;
  private complete = false;
  private kept = 0;

  private readonly files = h("input", { type: "file", multiple: true, hidden: true, "aria-label": gettext("Choose files") });
  private readonly folder = h("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": gettext("Choose a folder") });
  private readonly zone = h("div", { class: "drop" });
  private readonly notice = h("p", { class: "notice", role: "status", hidden: true });
  private readonly problem = h("p", { class: "notice error", role: "alert", hidden: true });
  private readonly hashing = new Sum(gettext("Checksums computed"));
  private readonly sending = new Sum(gettext("Uploaded"));
  private readonly pauseButton = h("button", { class: "button", type: "button", onclick: () => this.turn() });
  private readonly sealButton = h("button", { class: "button primary", type: "button", onclick: () => void this.seal() }, gettext("Seal the version"));
  private readonly sums = h("section", { class: "card padded upload-sums", hidden: true });
  private readonly body = h("tbody");
  private readonly more = h("p", { class: "quiet", hidden: true });
  private readonly table = h("section", { class: "card upload-files", hidden: true });

  connectedCallback(): void {
    this.build();
    this.listen();
    void this.recall();
  }

  // --- Building -----------------------------------------------------------------------------------------------------
  private build(): void {
    const choose = (input: HTMLInputElement, words: string): HTMLElement =>
      h("button", { class: "button", type: "button", onclick: () => input.click() }, words);
    this.zone.append(
      h("strong", {}, gettext("Drop files and folders here")),
      h("p", { class: "quiet" }, gettext("Files are uploaded in parts. You can pause, close this page and return later: uploaded parts are not sent again.")),
      h("div", { class: "in-row" }, choose(this.files, gettext("Choose files")), choose(this.folder, gettext("Choose a folder"))),
      this.files,
      this.folder,
    );
    const actions = h("div", { class: "in-row end" }, this.pauseButton, this.sealButton);
    this.sums.append(this.hashing.element, this.sending.element, actions);
    const head = [gettext("File"), gettext("Size"), gettext("State"), ""].map((title) => h("th", { scope: "col" }, title));
    this.table.append(h("table", { class: "table" }, h("thead", {}, h("tr", {}, ...head)), this.body), this.more);
    this.replaceChildren(this.problem, this.notice, this.zone, this.sums, this.table);
  }

  private listen(): void {
    for (const input of [this.files, this.folder]) {
      input.addEventListener("change", () => {
        if (input.files?.length) void this.take(chosen(input.files));
        input.value = "";
      });
    }
    for (const kind of ["dragenter", "dragover"]) {
      this.zone.addEventListener(kind, (event) => {
        event.preventDefault();
        this.zone.classList.add("over");
      });
    }
    this.zone.addEventListener("dragleave", () => this.zone.classList.remove("over"));
    this.zone.addEventListener("drop", (event) => {
      event.preventDefault();
      this.zone.classList.remove("over");
      if (event.dataTransfer) void dropped(event.dataTransfer).then((choice) => this.take(choice), (error) => this.showError(error));
    });
    addEventListener("online", () => this.uploader.stir());
    addEventListener("beforeunload", (event) => {
      if (this.uploader.busy && !this.uploader.paused) event.preventDefault();
    });
  }

  // --- Files --------------------------------------------------------------------------------------------------------
  private async take({ found, hidden }: Choice): Promise<void> {
    this.showError(null);
    const fresh = found.filter(({ path }) => !this.uploader.items.some((item) => item.path === path && item.stage !== "failed"));
    const left = hidden ? fill(gettext("{n} hidden files were left out."), { n: hidden }) : "";
    const double = found.length - fresh.length;
    this.showMessage([left, double ? fill(gettext("{n} files are already in the list."), { n: double }) : ""].filter(Boolean).join(" "));
    if (!fresh.length) return;
    try {
      await this.begin(fresh);
    } catch (error) {
      this.showError(error);
      return;
    }
    this.uploader.add(fresh.map(({ path, file }) => new Item(path, file, file.lastModified, this.memory?.sha256Of(path.normalize("NFC"), file.size, file.lastModified))));
  }

  /** Opens a version for the files, with quota for their size, if there is none. */
  private async begin(found: Found[]): Promise<void> {
    if (this.version !== null) return;
    const expected = found.reduce((sum, { file }) => sum + file.size, 0);
    const { number } = await postJson<Version>(`${this.base}/versions`, { expected_bytes: expected });
    this.version = number;
    this.memory = this.memoryOf(number);
    history.replaceState(null, "", `?version=${number}`);
  }

  private memoryOf(version: number): Memory {
    return new Memory(localStorage, `regatta-upload:${this.name}@${version}`);
  }

  /** Loads the state of an earlier visit: complete files, and those whose rest has to be sent. */
  private async recall(): Promise<void> {
    if (this.version === null) return;
    const there = await this.whole().catch(() => null);
    if (!there) return;
    const missing = (this.memory?.all ?? []).filter(({ path }) => !there.has(path)).map(({ path }) => path);
    const names = missing.slice(0, 5).join(", ") + (missing.length > 5 ? " …" : "");
    if (missing.length) this.showMessage(fill(gettext("Choose the same files again to continue. Missing: {names}."), { names }));
    else if (there.size) this.showMessage(fill(gettext("{n} files uploaded. Add more files, or seal the version."), { n: there.size }));
    this.sums.hidden = there.size === 0;
    this.paint();
  }

  private async whole(): Promise<Set<string>> {
    const paths = new Set<string>();
    for (let cursor: string | null = ""; cursor !== null; ) {
      const query: string = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
      const page: { results: { path: string }[]; next: string | null } = await getJson(`${this.url()}/files?limit=500${query}`);
      for (const { path } of page.results) paths.add(path);
      cursor = page.next;
    }
    return paths;
  }

  private portal(): Portal {
    return {
      announce: (path, size, sha256, signal) => postJson<Announced>(`${this.url()}/files`, { path, size, sha256 }, "", signal),
      sendPart: (file, part, blob, sha256, progress, signal) =>
        putBytes(`${this.url()}/files/${file}/parts/${part}`, blob, { "X-Content-SHA256": sha256 }, progress, signal),
      complete: (file, sha256, signal) => postJson(`${this.url()}/files/${file}/complete`, { sha256 }, "", signal),
      takeOut: (file) => deleteJson(`${this.url()}/files/${file}`),
    };
  }

  private url(): string {
    return `${this.base}/versions/${this.version}`;
  }

  private turn(): void {
    if (this.uploader.paused) this.uploader.resume();
    else this.uploader.pause();
    this.hashing.rate.forget();
    this.sending.rate.forget();
  }

  // --- Sealing ------------------------------------------------------------------------------------------------------
  private async seal(): Promise<void> {
    this.sealing = true;
    this.showError(null);
    this.paint();
    try {
      let version = await postJson<Version>(`${this.url()}/seal`, null);
      for (const began = Date.now(); version.state === "indexing"; ) {
        const time = duration((Date.now() - began) / 1000);
        this.showMessage(fill(gettext("Indexing: records are counted and split into chunks. {time} so far."), { time }), true);
        await new Promise((done) => setTimeout(done, LOOK_MS));
        version = await getJson<Version>(this.url());
      }
      this.memory?.forget();
      if (version.state === "sealed") location.assign(`${this.getAttribute("data-page")}?version=${version.number}`);
      else location.reload();
    } catch (error) {
      this.sealing = false;
      this.showMessage("");
      this.showError(error);
      this.paint();
    }
  }

  // --- Showing ------------------------------------------------------------------------------------------------------
  private showMessage(message: string, working = false): void {
    this.notice.replaceChildren(working ? h("progress", { "aria-hidden": "true" }) : "", message);
    this.notice.hidden = message === "";
  }

  private showError(error: unknown): void {
    this.problem.textContent = error ? messageOf(error) : "";
    this.problem.hidden = !error;
  }

  private paintSoon(): void {
    if (this.painting) return;
    this.painting = true;
    setTimeout(() => {
      this.painting = false;
      this.paint();
    }, PAINT_MS);
  }

  private paint(): void {
    const { items, busy, paused, trouble } = this.uploader;
    const sum = (of: (item: Item) => number): number => items.reduce((all, item) => all + of(item), 0);
    const all = sum(({ blob }) => blob.size);
    const [hashed, sent, now] = [sum((item) => item.hashed), sum((item) => item.arrived), performance.now()];
    this.hashing.rate.note(hashed, now);
    this.sending.rate.note(sent, now);
    this.hashing.show(hashed, all, busy && !paused);
    this.sending.show(sent, all, busy && !paused && !trouble);
    if (items.length) this.sums.hidden = this.table.hidden = false;
    this.pauseButton.hidden = !busy || this.sealing;
    this.pauseButton.textContent = paused ? gettext("Continue") : gettext("Pause");
    this.sealButton.disabled = busy || this.sealing || !this.uploader.whole || this.version === null;
    this.zone.hidden = this.sealing;
    if (trouble !== this.trouble) this.showError(trouble);
    this.trouble = trouble;
    const whole = items.length > 0 && this.uploader.whole;
    if (whole && !this.complete) this.showMessage(gettext("All files are uploaded. Add more files, or seal the version. A sealed version does not change and can be used by jobs."));
    this.complete = whole;
    this.paintRows(items);
    this.remember(items);
  }

  private paintRows(items: Item[]): void {
    for (const [item, row] of this.rows) {
      if (items.includes(item)) continue;
      row.element.remove();
      this.rows.delete(item);
    }
    for (const item of items.slice(0, SHOWN)) {
      let row = this.rows.get(item);
      if (!row) {
        row = new FileRow(item, this.uploader);
        this.rows.set(item, row);
        this.body.append(row.element);
      }
      row.show();
    }
    this.more.textContent = fill(gettext("{n} more files."), { n: items.length - SHOWN });
    this.more.hidden = items.length <= SHOWN;
  }

  /** Called when a file is hashed, which takes most of the time after a reload. */
  private remember(items: Item[]): void {
    const hashed = items.filter(({ sha256 }) => sha256);
    if (hashed.length === this.kept) return;
    this.kept = hashed.length;
    this.memory?.keep(hashed.map(({ path, blob, modified, sha256 }) => ({ path: path.normalize("NFC"), size: blob.size, modified, sha256 })));
  }
}

class FileRow {
  readonly element = h("tr");
  private readonly state = h("td");
  private readonly actions = h("td", { class: "right" });
  private lastText = "";

  constructor(
    private readonly item: Item,
    private readonly uploader: Uploader,
  ) {
    this.element.append(h("th", { scope: "row" }, item.path), h("td", {}, bytes(item.blob.size)), this.state, this.actions);
  }

  show(): void {
    const words = this.words();
    if (words === this.lastText) return;
    this.lastText = words;
    this.state.textContent = words;
    this.state.classList.toggle("field-error", this.item.stage === "failed");
    this.actions.replaceChildren(...(this.item.stage === "failed" ? this.buttons() : []));
  }

  private words(): string {
    const { stage, error, hashed, arrived, blob } = this.item;
    if (error instanceof Unreadable) return gettext("The file was changed or moved while it was read. Choose it again.");
    if (stage === "failed") return messageOf(error);
    const done = stage === "hashing" ? hashed : stage === "sending" ? arrived : 0;
    return STAGES[stage]() + (done && blob.size ? ` ${Math.floor((100 * done) / blob.size)} %` : "");
  }

  private buttons(): HTMLElement[] {
    const button = (words: string, action: () => void): HTMLElement => h("button", { class: "button small", type: "button", onclick: action }, words);
    const replace = button(gettext("Remove the other file"), () => void this.uploader.replace(this.item));
    const again = button(gettext("Try again"), () => this.uploader.again(this.item));
    const without = button(gettext("Skip this file"), () => void this.uploader.leaveOut(this.item));
    return [h("div", { class: "in-row end" }, this.item.other === null ? null : replace, again, without)];
  }
}

customElements.define("data-upload", DataUpload);
