/**
 * `<code-editor>`: the files of a job in tabs, Python and YAML. Ctrl-Enter dispatches a submit event, Ctrl-S a save
 * event. Tab indents; after Esc it leaves the editor, so that keyboard users are not trapped.
 */
import { indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { h, nonce } from "../core/dom";
import { gettext } from "../core/i18n";

/** An error at a place of a file; line and column count from 1. */
export interface Fault {
  file: string;
  line: number;
  column: number;
  text: string;
}

const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$/;

// Colours come from the style sheet, so that one editor serves light and dark.
const highlighting = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: "var(--code-function)" },
  { tag: [tags.definition(tags.variableName), tags.className, tags.propertyName], color: "var(--code-name)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13.5px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection) !important" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
});

export class CodeEditor extends HTMLElement {
  private readonly states = new Map<string, EditorState>();
  private open = "";
  private faults: Fault[] = [];
  private entrypoint = "";
  private view: EditorView | undefined;
  private readonly tabs = h("div", { class: "tabs", role: "tablist", "aria-label": gettext("Files") });
  private readonly host = h("div", { class: "editor-host" });

  connectedCallback(): void {
    this.replaceChildren(this.tabs, this.host);
    this.view = new EditorView({ parent: this.host, state: EditorState.create({ extensions: this.extensions("") }) });
  }

  disconnectedCallback(): void {
    this.view?.destroy();
    this.view = undefined;
  }

  /** The files by name. Setting them replaces the previous files, and opens the entry point (else the first). */
  get files(): Record<string, string> {
    this.keep();
    return Object.fromEntries([...this.states].map(([name, state]) => [name, state.doc.toString()]));
  }

  load(files: Record<string, string>, entrypoint: string): void {
    this.states.clear();
    for (const [name, text] of Object.entries(files)) this.states.set(name, this.stateOf(name, text));
    this.entrypoint = entrypoint;
    this.open = "";
    this.show(this.states.has(entrypoint) ? entrypoint : ([...this.states.keys()][0] ?? ""));
  }

  /** Marks the places of the server's errors; `go`: shows the first one and puts the cursor there. */
  mark(faults: Fault[], go = false): void {
    this.faults = faults;
    const first = faults[0];
    if (go && first && this.states.has(first.file)) this.show(first.file);
    const [marked] = this.showFaults();
    if (go && marked) {
      this.view?.dispatch({ selection: { anchor: marked.from }, scrollIntoView: true });
      this.view?.focus();
    }
  }

  private showFaults(): Diagnostic[] {
    if (!this.view) return [];
    const diagnostics = this.faults.filter((fault) => fault.file === this.open).map((fault) => this.diagnostic(fault));
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics));
    return diagnostics;
  }

  private diagnostic({ line, column, text }: Fault): Diagnostic {
    const doc = (this.view as EditorView).state.doc;
    const at = doc.line(Math.min(Math.max(1, line), doc.lines));
    const from = Math.min(at.to, at.from + Math.max(0, column - 1));
    return { from, to: Math.max(from, at.to), severity: "error", message: text };
  }

  private extensions(name: string): Extension[] {
    const readOnly = this.hasAttribute("readonly");
    const keys = keymap.of([
      { key: "Mod-Enter", run: () => this.emit("editor-submit") },
      { key: "Mod-s", run: () => this.emit("editor-save") },
      indentWithTab,
    ]);
    return [
      keys,
      basicSetup,
      lintGutter(),
      indentUnit.of("    "),
      syntaxHighlighting(highlighting),
      theme,
      EditorView.cspNonce.of(nonce()),
      EditorView.contentAttributes.of({ "aria-label": name || gettext("Editor"), "aria-describedby": this.getAttribute("aria-describedby") ?? "" }),
      EditorState.readOnly.of(readOnly),
      EditorView.updateListener.of((update) => update.docChanged && this.emit("editor-change")),
      /\.ya?ml$/.test(name) ? yaml() : python(),
    ];
  }

  private emit(name: string): boolean {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true }));
    return true;
  }

  private stateOf(name: string, text: string): EditorState {
    return EditorState.create({ doc: text, extensions: this.extensions(name) });
  }

  private keep(): void {
    if (this.open && this.view) this.states.set(this.open, this.view.state);
  }

  private show(name: string): void {
    if (this.open !== name) this.keep();
    this.open = name;
    const state = this.states.get(name);
    if (state && this.view) this.view.setState(state);
    this.showFaults();
    this.showTabs();
  }

  private showTabs(): void {
    const tabs = [...this.states.keys()].map((name) => this.tab(name));
    const add = h("button", { type: "button", class: "icon", title: gettext("Add a file"), "aria-label": gettext("Add a file"), onclick: () => this.add() }, "+");
    this.tabs.replaceChildren(...tabs.flat(), ...(this.hasAttribute("readonly") ? [] : [add]));
  }

  private tab(name: string): HTMLElement[] {
    const chosen = name === this.open;
    const tab = h("button", { type: "button", role: "tab", "aria-selected": String(chosen), onclick: () => this.show(name) }, name);
    if (!chosen || name === this.entrypoint || this.hasAttribute("readonly")) return [tab];
    const label = gettext("Remove this file");
    return [tab, h("button", { type: "button", class: "icon", title: label, "aria-label": label, onclick: () => this.drop(name) }, "×")];
  }

  private add(): void {
    const input = h("input", { class: "tab-name", "aria-label": gettext("Name of the new file"), placeholder: "model.py" });
    const finish = (): void => {
      const name = input.value.trim();
      input.remove();
      if (!NAME.test(name) || this.states.has(name)) return this.showTabs();
      this.states.set(name, this.stateOf(name, ""));
      this.show(name);
      this.view?.focus();
      this.emit("editor-change");
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        input.blur();
      }
      if (event.key === "Escape") {
        input.value = "";
        input.blur();
      }
    });
    input.addEventListener("blur", finish, { once: true });
    this.tabs.append(input);
    input.focus();
  }

  private drop(name: string): void {
    this.states.delete(name);
    this.open = "";
    this.show(this.entrypoint);
    this.emit("editor-change");
  }
}

customElements.define("code-editor", CodeEditor);
