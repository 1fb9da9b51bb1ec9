/** `<look-inside job>`: stacks of all replicas, grouped, and flame graphs with objects by type. For developers. */
import { h } from "../core/dom";
import { foldedText, merged, type Folded } from "../core/flame";
import { postJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { isTerminal, type Job } from "../core/job";
import { bytes } from "../core/numbers";
import { messageOf } from "../core/problem";
import { FlameGraph } from "./flame-graph";

interface Frame {
  file: string;
  line: number;
  function: string;
}

interface Thread {
  name: string;
  native: boolean;
  process: number;
}

interface Stacks {
  spread_ms: number;
  replicas: { replica: string; state: string; note: string | null; threads: Thread[]; left_out: number }[];
  groups: { frames: Frame[]; members: { replica: string; thread: string }[]; roles: Record<string, number> }[];
}

interface Process {
  process: number;
  name: string;
  resident: number;
  objects: number;
  types: { type: string; count: number }[];
}

interface Recording {
  replica: string;
  note: string | null;
  samples: number;
  stacks: Folded;
  memory: Process[];
}

interface Asked {
  replica: string;
  note: string | null;
}

const SECONDS = 10;
const HOLD_SECONDS = 900;
const STATES: Record<string, () => string> = {
  stopped: () => gettext("stopped"),
  unresponsive: () => gettext("not responding"),
  gone: () => gettext("ended"),
};

class LookInside extends HTMLElement {
  private busy = false;
  private over = false;
  private readonly take = h("button", { class: "button", type: "button", onclick: () => void this.stacks() }, gettext("Take stacks"));
  private readonly record = h("button", { class: "button", type: "button", onclick: () => void this.flameGraph() }, fill(gettext("Record flame graph ({seconds} s)"), { seconds: SECONDS }));
  private readonly hold = h("button", { class: "button", type: "button", onclick: () => void this.holdFailures() }, fill(gettext("Hold failures ({minutes} min)"), { minutes: HOLD_SECONDS / 60 }));
  private readonly note = h("span", { class: "quiet", role: "status" });
  private readonly result = h("div", { class: "look-result" });

  connectedCallback(): void {
    this.replaceChildren(h("div", { class: "look-buttons" }, this.take, this.record, this.hold, this.note), this.result);
    document.addEventListener("regatta:job", (event) => {
      this.over = isTerminal((event as CustomEvent<Job>).detail.state);
      this.enable();
    });
  }

  private enable(): void {
    this.take.disabled = this.record.disabled = this.hold.disabled = this.busy || this.over;
  }

  private async ask<Answer>(path: string, body: unknown, waiting: string): Promise<Answer | null> {
    this.busy = true;
    this.enable();
    this.note.textContent = waiting;
    try {
      const answer = await postJson<Answer>(`/api/v1/jobs/${this.getAttribute("job")}/${path}`, body);
      this.note.textContent = "";
      return answer;
    } catch (error) {
      this.note.textContent = messageOf(error);
      return null;
    } finally {
      this.busy = false;
      this.enable();
    }
  }

  // --- Hold ------------------------------------------------------------------------------------------------------------
  private async holdFailures(): Promise<void> {
    const found = await this.ask<{ replicas: Asked[] }>("hold", { seconds: HOLD_SECONDS, replicas: null }, "");
    if (!found) return;
    const failed = found.replicas.filter(({ note }) => note);
    const length = { minutes: HOLD_SECONDS / 60, count: found.replicas.length - failed.length };
    this.result.replaceChildren(
      h("p", { class: "quiet" }, fill(gettext("A program that ends with an exception from now on is held for {minutes} min. Replicas: {count}."), length)),
      h("ul", { class: "look-states", hidden: !failed.length }, ...failed.map(({ replica, note }) => h("li", {}, h("strong", {}, replica), ` ${note ?? ""}`))),
    );
  }

  // --- Stacks ----------------------------------------------------------------------------------------------------------
  private async stacks(): Promise<void> {
    const found = await this.ask<Stacks>("stacks", {}, gettext("Taking stacks…"));
    if (!found) return;
    const taken = fill(gettext("{count} replicas, asked within {spread} ms."), { count: found.replicas.length, spread: found.spread_ms });
    const troubled = found.replicas.filter(({ state, note }) => state !== "running" || note);
    const natives = found.replicas.flatMap(({ replica, threads }) => threads.filter((one) => one.native).map((one) => `${replica} ${one.name}`));
    this.result.replaceChildren(
      h("p", { class: "quiet" }, taken),
      h("ul", { class: "look-states", hidden: !troubled.length }, ...troubled.map(stateRow)),
      ...found.groups.map((group, index) => groupOf(group, index === 0)),
      ...(natives.length ? [disclosure(fill(gettext("{count} native threads"), { count: natives.length }), h("pre", {}, natives.join("\n")))] : []),
    );
  }

  // --- Flame graph -----------------------------------------------------------------------------------------------------
  private async flameGraph(): Promise<void> {
    const body = { seconds: SECONDS, replicas: null };
    const found = await this.ask<{ replicas: Recording[] }>("flamegraph", body, fill(gettext("Recording for {seconds} s…"), { seconds: SECONDS }));
    if (!found) return;
    const recorded = found.replicas.filter(({ samples }) => samples > 0);
    const failed = found.replicas.filter(({ note }) => note);
    const graph = new FlameGraph();
    const which = h("select", { class: "small" }, h("option", { value: "" }, gettext("All replicas")), ...recorded.map(({ replica }) => h("option", {}, replica)));
    const save = h("a", { class: "button small", download: "stacks.folded" }, gettext("Download"));
    const memory = h("div", {});
    const show = (): void => {
      const chosen = recorded.filter(({ replica }) => !which.value || replica === which.value);
      const stacks = merged(chosen);
      graph.show(stacks);
      URL.revokeObjectURL(save.href);
      save.href = URL.createObjectURL(new Blob([foldedText(stacks)], { type: "text/plain" }));
      memory.replaceChildren(...chosen.flatMap(({ replica, memory }) => memory.map((process) => memoryOf(replica, process))));
    };
    which.addEventListener("change", show);
    this.result.replaceChildren(
      h("ul", { class: "look-states", hidden: !failed.length }, ...failed.map(({ replica, note }) => h("li", {}, h("strong", {}, replica), ` ${note ?? ""}`))),
      ...(recorded.length ? [h("div", { class: "look-buttons" }, h("label", { class: "inline" }, gettext("Replica"), which), save), graph, memory] : []),
    );
    if (recorded.length) show();
  }
}

function stateRow({ replica, state, note }: Stacks["replicas"][number]): HTMLElement {
  const word = STATES[state]?.();
  return h("li", {}, h("strong", {}, replica), word ? ` ${word}. ` : " ", note);
}

function groupOf({ frames, members, roles }: Stacks["groups"][number], open: boolean): HTMLElement {
  const who = Object.entries(roles).map(([role, count]) => `${count} × ${role}`).join(", ");
  const inner = frames[0];
  const threads = members.map(({ replica, thread }) => (thread ? `${replica} ${thread}` : replica)).join(", ");
  const text = frames.map((frame) => `${frame.function}  ${frame.file}:${frame.line || "?"}`).join("\n");
  return disclosure(`${who}: ${inner ? `${inner.function} (${inner.file.split("/").pop() ?? ""}:${inner.line || "?"})` : ""}`, h("p", { class: "quiet" }, threads), h("pre", {}, text), open);
}

function memoryOf(replica: string, { process, name, resident, objects, types }: Process): HTMLElement {
  const rows = types.map(({ type, count }) => h("tr", {}, h("th", { scope: "row" }, type), h("td", { class: "right" }, count.toLocaleString())));
  const title = fill(gettext("{replica}, {name} {process}: {memory} in memory, {objects} objects"), { replica, name, process, memory: bytes(resident), objects: objects.toLocaleString() });
  return disclosure(title, h("table", { class: "table" }, h("tbody", {}, ...rows)));
}

function disclosure(title: string, ...content: (HTMLElement | boolean)[]): HTMLElement {
  const open = content.includes(true);
  return h("details", { class: "look-group", open }, h("summary", {}, title), ...content.filter((one) => typeof one !== "boolean"));
}

customElements.define("look-inside", LookInside);
