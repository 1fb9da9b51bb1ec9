/** The page "New job": form, editor and YAML are three views of one specification; this browser stores the draft. */
import { debounce, embedded, h } from "./core/dom";
import { asImage, frameworkOf, hasImage, saysNothing, useless, withoutUseless, type Frameworks } from "./core/framework";
import { ApiError, postJson, type Problem } from "./core/http";
import { fill, gettext } from "./core/i18n";
import { at, fieldOf, fieldValue, fileOf, listValue, pairsText, pairsValue, withBounds, withoutFiles, withValue, type Spec, type Value } from "./core/spec";
import { CodeEditor, type Fault } from "./elements/code-editor";
import { ModeField } from "./mode-field";

interface Example {
  name: string;
  spec: Spec;
}

interface PageData {
  namespace: string;
  examples: Example[];
  frameworks: Frameworks;
  /** The initial specification: a cloned job, or the example of the address. */
  spec: Spec;
  /** Whether the address requested that; it then replaces a draft. */
  wanted: boolean;
}

interface DryRun {
  verdict: "admitted" | "queued" | "refused";
  /** A message; with the numbers when the job waits or is refused. */
  reason: string;
}

type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

const VERDICT_MS = 500;
const DRAFT_MS = 400;

class NewJob {
  private readonly data = embedded<PageData>("new-job-data") as PageData;
  private readonly form = document.querySelector("form#new-job") as HTMLFormElement;
  private readonly mode = new ModeField();
  private readonly editor = document.querySelector("code-editor") as CodeEditor;
  private readonly yaml = document.querySelector("textarea#yaml") as HTMLTextAreaElement;
  private readonly verdict = document.querySelector("[data-verdict]") as HTMLElement;
  private readonly submitButton = this.form.querySelector("button[type=submit]") as HTMLButtonElement;
  private readonly draftKey = `regatta-draft:${this.data.namespace}`;
  private spec: Spec = {};
  private asked = 0;
  private readonly keepDraft = debounce(() => this.saveDraft(), DRAFT_MS);
  private readonly ask = debounce(() => void this.askVerdict(), VERDICT_MS);
  /** One idempotency key per intent: submitting again after a lost answer returns the same job. */
  private key = crypto.randomUUID?.() ?? String(Math.random());

  start(): void {
    this.use(this.draft() ?? this.data.spec);
    this.form.addEventListener("input", (event) => this.fieldChanged(event.target as HTMLElement));
    this.form.querySelector("#image")?.addEventListener("change", () => this.imageNamed());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    this.editor.addEventListener("editor-change", () => this.changed());
    this.editor.addEventListener("editor-save", () => this.saveDraft(true));
    this.editor.addEventListener("editor-submit", () => void this.submit());
    document.addEventListener("keydown", (event) => this.pageKey(event));
    document.querySelector("#yaml-panel")?.addEventListener("toggle", () => void this.showYaml());
    this.yaml.addEventListener("input", debounce(() => void this.readYaml(), 400));
    for (const button of document.querySelectorAll<HTMLElement>("[data-example]")) {
      button.addEventListener("click", () => this.useExample(button.dataset["example"] ?? ""));
    }
    // The page has them disabled until now: an earlier click would be lost without a message.
    for (const button of document.querySelectorAll("[data-example], #new-job [type=submit]")) button.removeAttribute("disabled");
  }

  // --- One specification, three views -------------------------------------------------------------------------------

  private use(spec: Spec): void {
    this.spec = spec;
    this.showFields();
    this.editor.load((spec["files"] ?? {}) as Record<string, string>, String(spec["entrypoint"] ?? "train.py"));
    void this.showYaml();
    this.ask();
  }

  private fields(): Field[] {
    return [...this.form.querySelectorAll<Field>("[data-path]")];
  }

  private showFields(): void {
    this.mode.show(String(at(this.spec, "mode") ?? ""));
    for (const field of this.fields()) if (!this.mode.owns(field)) this.showField(field);
    this.showUseful();
  }

  /** Hides fields that the framework does not use, unless they have a value. */
  private showUseful(): void {
    const unused = useless(this.spec, this.data.frameworks);
    for (const field of this.fields()) {
      const path = field.dataset["path"] ?? "";
      const place = field.closest<HTMLElement>(".field");
      if (place) place.hidden = unused.includes(path) && saysNothing(this.spec, path);
    }
    // The code is stored: it is shown again when the image is removed.
    for (const place of document.querySelectorAll<HTMLElement>("[data-code]")) place.hidden = hasImage(this.spec);
    for (const place of document.querySelectorAll<HTMLElement>("[data-no-code]")) place.hidden = !hasImage(this.spec);
  }

  private showField(field: Field): void {
    const found = at(this.spec, field.dataset["path"] ?? "");
    const shown = Array.isArray(found) ? found.join(field.hasAttribute("data-list") ? ", " : " ") : String(found ?? "");
    const written = field.hasAttribute("data-pairs") ? pairsText(found) : shown;
    // A missing value shows its default.
    const value = field.id === "framework" ? frameworkOf(this.spec) : written;
    field.value = value;
    this.growSelect(field, value);
  }

  /** A value without an option in a select (of a clone) becomes an option. */
  private growSelect(field: Field, value: string): void {
    if (!(field instanceof HTMLSelectElement) || field.value === value || value === "") return;
    field.append(h("option", { value }, value));
    field.value = value;
  }

  private fieldChanged(target: HTMLElement): void {
    const path = target.dataset["path"];
    if (!path) return;
    const value = this.valueOf(target);
    const changed = withValue(this.spec, path, value);
    if (path === "framework") return this.frameworkChanged(changed);
    // Only a number of trainers moves the bounds; the server refuses a bound that does not fit it.
    this.spec = path === "roles.trainer.replicas" ? withBounds(changed) : changed;
    if (this.spec !== changed) this.showField(this.form.querySelector('[data-path="roles.trainer.max"]') as Field);
    this.clearError(path);
    this.showUseful();
    void this.showYaml();
    this.changed();
  }

  private frameworkChanged(spec: Spec): void {
    this.spec = withoutUseless(spec, this.data.frameworks);
    this.showFields();
    void this.showYaml();
    this.changed();
  }

  /** Applied only when the YAML is complete: until then all other actions are disabled. */
  private imageNamed(): void {
    const spec = asImage(this.spec, this.data.frameworks, Object.keys(this.editor.files));
    if (spec === this.spec) return;
    this.spec = spec;
    this.clearErrors();
    this.showFields();
    void this.showYaml();
    this.changed();
  }

  private valueOf(target: HTMLElement): Value {
    if (this.mode.owns(target)) return this.mode.value;
    const text = (target as Field).value;
    if (target.hasAttribute("data-switch")) return text === "" ? "" : text === "true";
    if (target.hasAttribute("data-pairs")) return pairsValue(text);
    return target.hasAttribute("data-list") ? listValue(text) : fieldValue(text, target.hasAttribute("data-number"));
  }

  private changed(): void {
    this.key = crypto.randomUUID?.() ?? String(Math.random());
    this.keepDraft();
    this.ask();
  }

  private whole(): Spec {
    return { ...this.spec, files: this.editor.files as Value };
  }

  /** The specification to send: a custom image takes no code. */
  private submission(): Spec {
    return hasImage(this.spec) ? withoutFiles(this.spec) : this.whole();
  }

  private async showYaml(): Promise<void> {
    if (!this.yamlOpen()) return;
    const { stringify } = await import("yaml");
    // Text that the user began to write meanwhile is not overwritten.
    if (document.activeElement === this.yaml) return;
    this.yaml.value = stringify(withoutFiles(this.spec), { lineWidth: 0 });
  }

  private yamlOpen(): boolean {
    return (document.querySelector("#yaml-panel") as HTMLDetailsElement).open;
  }

  private async readYaml(): Promise<void> {
    const { parse } = await import("yaml");
    try {
      const spec = parse(this.yaml.value) as unknown;
      if (spec === null || typeof spec !== "object" || Array.isArray(spec)) throw new Error(gettext("Enter keys and values."));
      this.fromYaml(spec as Spec);
      this.showError("yaml", []);
    } catch (error) {
      this.showError("yaml", [(error as Error).message]);
    }
  }

  private fromYaml(spec: Spec): void {
    if (spec["files"]) this.editor.load(spec["files"] as Record<string, string>, String(spec["entrypoint"] ?? "train.py"));
    this.spec = spec;
    this.showFields();
    this.changed();
  }

  private useExample(name: string): void {
    const example = this.data.examples.find((candidate) => candidate.name === name);
    if (!example) return;
    const files = JSON.stringify(this.editor.files);
    const untouched = this.data.examples.some((known) => JSON.stringify(known.spec["files"] ?? {}) === files);
    if (!untouched && !confirm(gettext("Replace the code in the editor with this example?"))) return;
    this.clearErrors();
    this.use(example.spec);
    this.saveDraft();
  }

  // --- Draft --------------------------------------------------------------------------------------------------------

  private draft(): Spec | null {
    if (this.data.wanted) return null;
    try {
      return JSON.parse(localStorage.getItem(this.draftKey) ?? "null") as Spec | null;
    } catch {
      return null;
    }
  }

  private saveDraft(notify = false): void {
    try {
      localStorage.setItem(this.draftKey, JSON.stringify(this.whole()));
    } catch {
      return;
    }
    // The address no longer names the initial specification: a reload shows the draft.
    if (location.search) history.replaceState(null, "", location.pathname);
    if (notify) this.showStatus(gettext("The draft is saved in this browser."), "quiet");
  }

  // --- Verdict and submit -------------------------------------------------------------------------------------------

  private url(query = ""): string {
    return `/api/v1/namespaces/${this.data.namespace}/jobs${query}`;
  }

  private async askVerdict(): Promise<void> {
    const number = ++this.asked;
    try {
      const answer = await postJson<DryRun>(this.url("?dry_run=true"), this.submission());
      if (number !== this.asked) return;
      this.clearErrors();
      this.showVerdict(answer);
    } catch (error) {
      if (number === this.asked && error instanceof ApiError) this.showProblem(error.problem, false);
    }
  }

  private showVerdict({ verdict, reason }: DryRun): void {
    if (verdict === "admitted") this.showStatus(gettext("Fits the quota and can start now."), "good");
    else if (verdict === "queued") this.showStatus(fill(gettext("The job would be queued. {why}"), { why: reason }), "wait");
    else this.showStatus(reason, "bad");
  }

  private async submit(): Promise<void> {
    if (this.submitButton.disabled) return;
    this.submitButton.disabled = true;
    this.saveDraft();
    this.clearErrors();
    try {
      const job = await postJson<{ id: string }>(this.url(), this.submission(), this.key);
      localStorage.removeItem(this.draftKey);
      location.assign(`/n/${this.data.namespace}/jobs/${job.id}`);
    } catch (error) {
      this.submitButton.disabled = false;
      if (error instanceof ApiError) this.showProblem(error.problem, true);
      else this.showStatus(gettext("The portal cannot be reached. The draft is saved. Try again."), "bad");
    }
  }

  private showProblem(problem: Problem, loudly: boolean): void {
    this.clearErrors();
    const shown = new Map<string, Set<string>>();
    for (const [path, messages] of Object.entries(problem.errors ?? {})) {
      const file = fileOf(path);
      const place = file ? "files" : fieldOf(path);
      const texts = shown.get(place) ?? new Set();
      shown.set(place, texts);
      for (const message of messages) texts.add(file ? `${file}: ${message}` : message);
    }
    const homeless = [...shown].filter(([place, texts]) => !this.showError(place, [...texts]));
    this.editor.mark(faultsOf(problem), loudly);
    const rest = homeless.flatMap(([, texts]) => [...texts]).join(" ");
    this.showStatus(rest || (shown.size ? gettext("Check the marked fields.") : problem.detail), "bad");
    if (loudly) this.form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }

  private showError(path: string, messages: string[]): boolean {
    const note = document.querySelector<HTMLElement>(`[data-error-for="${CSS.escape(path)}"]`);
    if (!note) return false;
    note.textContent = messages.join(" ");
    note.hidden = messages.length === 0;
    const field = document.querySelector<HTMLElement>(`[data-path="${CSS.escape(path)}"]`);
    if (messages.length) field?.setAttribute("aria-invalid", "true");
    else field?.removeAttribute("aria-invalid");
    if (messages.length) note.closest("details")?.setAttribute("open", "");
    return true;
  }

  private clearError(path: string): void {
    this.showError(path, []);
  }

  private clearErrors(): void {
    this.clearError("files");
    for (const field of this.fields()) this.clearError(field.dataset["path"] ?? "");
    this.editor.mark([]);
  }

  private showStatus(text: string, tone: "good" | "wait" | "bad" | "quiet"): void {
    this.verdict.textContent = text;
    this.verdict.dataset["tone"] = tone;
  }

  private pageKey(event: KeyboardEvent): void {
    if (!(event.ctrlKey || event.metaKey) || event.defaultPrevented) return;
    if (event.key === "Enter") void this.submit();
    else if (event.key === "s") {
      event.preventDefault();
      this.saveDraft(true);
    }
  }
}

/** The errors that have a place in the editor. */
function faultsOf({ errors = {}, positions = {} }: Problem): Fault[] {
  return Object.entries(positions).map(([path, place]) => ({ file: fileOf(path), ...place, text: (errors[path] ?? []).join(" ") }));
}

new NewJob().start();
