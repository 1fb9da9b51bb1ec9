/**
 * `<terminal-view job="..." replica="...">`: a shell in a running replica. It survives the loss of the connection and of
 * the page: the shell runs under the replica's agent, and the element asks for the output that it has missed.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal, type ITheme } from "@xterm/xterm";
import sheetText from "@xterm/xterm/css/xterm.css";
import { backoff } from "../core/cursor";
import { h } from "../core/dom";
import { fill, gettext } from "../core/i18n";
import { reconnects, TerminalCursor, terminalAddress } from "../core/terminal";
import { styledDocument } from "../core/xterm-document";

const SIGNED_OUT = 4401;
const FONT_PX = 13;
const INPUT_BYTES = 32 * 1024;
/** xterm.js refuses to hold more than this; the portal stops long before. */
const SCROLLBACK_LINES = 5000;

interface Message {
  t: string;
  replica?: string;
  recorded?: boolean;
  session?: string;
  from?: number;
  bytes?: number;
  code?: number | string;
  detail?: string;
}

export class TerminalView extends HTMLElement {
  private readonly cursor = new TerminalCursor();
  private readonly fit = new FitAddon();
  private readonly note = h("span", { class: "quiet", role: "status" });
  private readonly recorded = h("span", { class: "recorded", hidden: true }, gettext("This session is recorded"));
  private readonly box = h("div", { class: "terminal-box" });
  private terminal: Terminal | undefined;
  private socket: WebSocket | undefined;
  private sizes: ResizeObserver | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private over = false;
  private refusal = "";
  private readonly onTheme = (): void => {
    if (this.terminal) this.terminal.options.theme = themeOf(this);
  };

  connectedCallback(): void {
    this.cursor.session = this.getAttribute("session") ?? "";
    const name = this.getAttribute("replica") ?? "";
    const close = h("button", { type: "button", class: "button small" }, gettext("Close"), h("span", { class: "visually-hidden" }, ` ${name}`));
    close.addEventListener("click", () => this.end());
    this.replaceChildren(
      h("div", { class: "terminal-head" }, h("strong", {}, name), this.recorded, this.note, h("span", { class: "spacer" }), close),
      this.box,
      h("p", { class: "quiet terminal-help" }, gettext("Ctrl+F6 leaves the terminal by keyboard. The shell runs for 15 minutes without a page.")),
    );
    this.startTerminal(name);
    document.addEventListener("regatta:theme", this.onTheme);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.onTheme);
    this.connect();
  }

  disconnectedCallback(): void {
    this.over = true;
    clearTimeout(this.retry);
    this.sizes?.disconnect();
    document.removeEventListener("regatta:theme", this.onTheme);
    matchMedia("(prefers-color-scheme: dark)").removeEventListener("change", this.onTheme);
    this.socket?.close();
    this.terminal?.dispose();
  }

  private startTerminal(name: string): void {
    adoptSheet();
    const terminal = new Terminal({
      documentOverride: styledDocument(),
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono") || "monospace",
      fontSize: FONT_PX,
      scrollback: SCROLLBACK_LINES,
      screenReaderMode: false,
      theme: themeOf(this),
    });
    this.terminal = terminal;
    terminal.loadAddon(this.fit);
    terminal.open(this.box);
    terminal.textarea?.setAttribute("aria-label", fill(gettext("Terminal in {name}. Ctrl+F6 leaves it."), { name }));
    terminal.attachCustomKeyEventHandler((event) => !this.leaves(event));
    terminal.onData((text) => this.enter(new TextEncoder().encode(text)));
    terminal.onBinary((text) => this.enter(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    terminal.onResize(({ cols, rows }) => this.tell({ op: "resize", columns: cols, rows }));
    this.fit.fit();
    this.sizes = new ResizeObserver(() => this.fit.fit());
    this.sizes.observe(this.box);
    terminal.focus();
  }

  /** The key that moves the focus out, to the button after the terminal's name. */
  private leaves(event: KeyboardEvent): boolean {
    if (event.key !== "F6" || !event.ctrlKey) return false;
    event.preventDefault();
    if (event.type === "keydown") this.querySelector<HTMLElement>(".terminal-head button")?.focus();
    return true;
  }

  // --- The connection ---------------------------------------------------------------------------------------------------
  private connect(): void {
    const terminal = this.terminal as Terminal;
    const socket = new WebSocket(
      terminalAddress(location, {
        job: this.getAttribute("job") ?? "",
        replica: this.getAttribute("replica") ?? "",
        session: this.cursor.session,
        after: this.cursor.position,
        columns: terminal.cols,
        rows: terminal.rows,
        ack: 1,
      }),
    );
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.refusal = "";
    this.say(gettext("Connecting…"));
    socket.onmessage = ({ data }) => (typeof data === "string" ? this.heed(JSON.parse(data) as Message) : this.show(new Uint8Array(data as ArrayBuffer)));
    socket.onclose = ({ code, reason }) => this.closed(code, reason);
  }

  private heed(message: Message): void {
    if (message.t === "ready") this.recorded.hidden = !message.recorded;
    else if (message.t === "session") this.begun(message.session ?? "", message.from ?? 0);
    else if (message.t === "gap") this.skipped(message.bytes ?? 0);
    else if (message.t === "exit") this.ended(fill(gettext("The shell has ended with code {code}."), { code: message.code ?? "" }));
    else if (message.t === "error") this.refused(String(message.code), message.detail ?? "");
  }

  private begun(session: string, from: number): void {
    this.failures = 0;
    this.cursor.begin(session, from);
    this.setAttribute("session", session);
    this.say(gettext("Connected"));
    this.dispatchEvent(new CustomEvent("regatta:terminal", { bubbles: true }));
  }

  private show(data: Uint8Array): void {
    this.cursor.advance(data.length);
    this.terminal?.write(data, () => {
      const due = this.cursor.show(data.length);
      if (due) this.tell({ op: "ack", bytes: due });
    });
  }

  private skipped(bytes: number): void {
    this.cursor.skip(bytes);
    this.terminal?.write(`\r\n[${fill(gettext("{bytes} bytes of output are no longer kept"), { bytes })}]\r\n`);
  }

  private refused(code: string, detail: string): void {
    // The shell of an earlier connection has ended, for example with its replica: the next one begins a new shell.
    if (code === "terminal_ended") this.cursor.forget();
    this.refusal = labelOf(code) || detail;
    this.say(this.refusal);
  }

  private ended(text: string): void {
    this.over = true;
    this.cursor.forget();
    this.removeAttribute("session");
    this.say(text);
    this.dispatchEvent(new CustomEvent("regatta:terminal", { bubbles: true }));
  }

  private closed(code: number, reason: string): void {
    if (this.over) return;
    if (reconnects(code)) {
      this.say(gettext("Reconnecting…"));
      this.retry = setTimeout(() => this.connect(), backoff(this.failures++, Math.random()));
      return;
    }
    this.ended(code === SIGNED_OUT ? gettext("You are signed out. Sign in, then open the terminal again.") : this.refusal || reason);
  }

  // --- Input ------------------------------------------------------------------------------------------------------------
  private enter(data: Uint8Array): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (let start = 0; start < data.length; start += INPUT_BYTES) this.socket.send(data.slice(start, start + INPUT_BYTES));
  }

  private tell(message: Record<string, string | number>): void {
    if (this.socket?.readyState === WebSocket.OPEN && this.cursor.session) this.socket.send(JSON.stringify(message));
  }

  /** Ends the shell and removes the element. */
  private end(): void {
    this.tell({ op: "end" });
    this.removeAttribute("session");
    this.dispatchEvent(new CustomEvent("regatta:terminal", { bubbles: true }));
    this.remove();
    document.dispatchEvent(new CustomEvent("regatta:terminal-closed", { detail: this.getAttribute("replica") }));
  }

  private say(text: string): void {
    this.note.textContent = text;
  }
}

/** The texts of the agent's refusals, which come in English. */
function labelOf(code: string): string {
  const labels: Record<string, string> = {
    terminal_ended: gettext("This terminal has ended. Open a new one."),
    too_many_terminals: gettext("This replica has as many terminals as it may have. Close one first."),
    no_user_code: gettext("This replica runs no code of yours, so it has no terminal."),
  };
  return labels[code] ?? "";
}

let adopted = false;

/** Adds the style sheet of xterm.js once, through the object model, which the content security policy allows. */
function adoptSheet(): void {
  if (adopted) return;
  adopted = true;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(sheetText);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}

/** The colours of the page's theme; the sixteen of programs have enough contrast on its background. */
function themeOf(element: HTMLElement): ITheme {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const dark = style.colorScheme === "dark";
  const colours = dark ? DARK : LIGHT;
  return {
    background: colour("surface"),
    foreground: colour("text"),
    cursor: colour("accent"),
    cursorAccent: colour("surface"),
    selectionBackground: colour("selection"),
    ...colours,
  };
}

const LIGHT: ITheme = {
  black: "#17202c", red: "#b3261e", green: "#18794e", yellow: "#7a5600", blue: "#0550ae", magenta: "#8250df", cyan: "#0b6b75", white: "#5a6675",
  brightBlack: "#5a6675", brightRed: "#c0262d", brightGreen: "#0a6b3d", brightYellow: "#8a5300", brightBlue: "#0f6cbd", brightMagenta: "#9a3f77", brightCyan: "#0b6b75", brightWhite: "#17202c",
};
const DARK: ITheme = {
  black: "#2a3542", red: "#ff8a8a", green: "#58c48a", yellow: "#f0b65a", blue: "#6bb5f5", magenta: "#c4a2ff", cyan: "#6fd3dc", white: "#e4eaf1",
  brightBlack: "#98a5b5", brightRed: "#ff9097", brightGreen: "#7fd6a2", brightYellow: "#ffb27a", brightBlue: "#7cc0ff", brightMagenta: "#e39ac6", brightCyan: "#8fe3ea", brightWhite: "#ffffff",
};

customElements.define("terminal-view", TerminalView);
