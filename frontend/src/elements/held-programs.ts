/** `<held-programs job may-release may-exec>`: programs that are held at their exception, with the variables of their frames. */
import { embedded, h } from "../core/dom";
import { postJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { dateOf, isTerminal, type Held, type Job, type Replica } from "../core/job";
import { bytes } from "../core/numbers";
import { messageOf } from "../core/problem";

interface Variable {
  name: string;
  type: string;
  size: number | null;
  shape: string;
  text: string;
}

interface Frame {
  file: string;
  line: number;
  function: string;
  variables: Variable[];
}

interface Program {
  exception: string;
  message: string;
  complete: boolean;
  frames: Frame[];
}

class HeldPrograms extends HTMLElement {
  /** The parts by replica and end of the hold: a part that is shown keeps its variables when the job changes. */
  private readonly parts = new Map<string, HTMLElement>();

  connectedCallback(): void {
    const job = embedded<Job>("job-data");
    if (job) this.show(job);
    document.addEventListener("regatta:job", (event) => this.show((event as CustomEvent<Job>).detail));
  }

  private show(job: Job): void {
    const held = isTerminal(job.state) ? [] : job.replicas.filter(isHeld);
    const names = new Set(held.map(({ name, held: { exception } }) => `${name} ${exception}`));
    for (const [key, part] of this.parts) {
      if (names.has(key)) continue;
      part.remove();
      this.parts.delete(key);
    }
    for (const replica of held) {
      const key = `${replica.name} ${replica.held.exception}`;
      const part = this.parts.get(key) ?? this.partOf(replica);
      (part.querySelector("[data-held]") as HTMLElement).textContent = inWords(replica);
      if (!this.parts.has(key)) this.append(part);
      this.parts.set(key, part);
    }
    const card = this.closest<HTMLElement>("section");
    if (card) card.hidden = this.parts.size === 0;
  }

  private partOf({ name }: Replica): HTMLElement {
    const note = h("span", { class: "quiet", role: "status" });
    const frames = h("div", { class: "look-result" });
    const release = h("button", { class: "button", type: "button" }, gettext("Release"), forReaders(name));
    const look = h("button", { class: "button", type: "button" }, gettext("Show variables"), forReaders(name));
    release.addEventListener("click", () => void this.ask(release, note, "release", { replicas: [name] }));
    look.addEventListener("click", () => {
      void this.ask<Program>(look, note, "variables", { replica: name }).then((found) => found && frames.replaceChildren(...programOf(found)));
    });
    const mayExec = this.hasAttribute("may-exec");
    return h(
      "div",
      { class: "held" },
      h("p", { "data-held": true }),
      h(
        "div",
        { class: "look-buttons" },
        this.hasAttribute("may-release") && release,
        mayExec && h("button", { class: "button", type: "button", "data-terminal": name }, gettext("Terminal"), forReaders(name)),
        mayExec && look,
        note,
      ),
      frames,
    );
  }

  private async ask<Answer>(button: HTMLButtonElement, note: HTMLElement, path: string, body: unknown): Promise<Answer | null> {
    button.disabled = true;
    note.textContent = "";
    try {
      return await postJson<Answer>(`/api/v1/jobs/${this.getAttribute("job")}/${path}`, body);
    } catch (error) {
      note.textContent = messageOf(error);
      return null;
    } finally {
      button.disabled = false;
    }
  }
}

function isHeld(replica: Replica): replica is Replica & { held: Held } {
  return replica.held !== null;
}

function inWords({ name, held }: Replica & { held: Held }): string {
  const time = dateOf(held.until).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return fill(gettext("{replica} failed with {exception} and is held until {time}. The quota goes on counting."), { replica: name, exception: held.exception, time });
}

function forReaders(name: string): HTMLElement {
  return h("span", { class: "visually-hidden" }, ` ${name}`);
}

function programOf({ exception, message, complete, frames }: Program): HTMLElement[] {
  return [
    h("p", {}, h("strong", {}, exception), message && `: ${message}`),
    ...frames.map((frame, index) => frameOf(frame, index === 0)),
    ...(complete ? [] : [h("p", { class: "quiet" }, gettext("Some variables are left out: there are too many, or they took too long to describe."))]),
  ];
}

function frameOf({ file, line, function: name, variables }: Frame, open: boolean): HTMLElement {
  const head = [gettext("Variable"), gettext("Type"), gettext("Size"), gettext("Value")].map((text) => h("th", { scope: "col" }, text));
  const table = h("table", { class: "table" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...variables.map(variableRow)));
  return h(
    "details",
    { class: "look-group", open },
    h("summary", {}, `${name} (${file}:${line || "?"})`),
    variables.length ? h("div", { class: "table-scroll" }, table) : h("p", { class: "quiet" }, gettext("No variables.")),
  );
}

function variableRow({ name, type, size, shape, text }: Variable): HTMLElement {
  const kind = shape ? `${type} ${shape}` : type;
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "quiet" }, kind), h("td", { class: "right" }, size === null ? "–" : bytes(size)), h("td", {}, h("code", {}, text)));
}

customElements.define("held-programs", HeldPrograms);
