/**
 * Colours of terminal output. Only SGR sequences have an effect (ECMA-48, 8.3.117); every other escape sequence is
 * dropped, so that no printed text can move a cursor or set a title. Pure.
 */

export interface Piece {
  text: string;
  /** Classes of the style sheet: ansi-fg-0..15, ansi-bg-0..15, ansi-bold, ansi-dim, ansi-italic, ansi-underline. */
  classes: string[];
}

interface Style {
  fg: number | null;
  bg: number | null;
  flags: Set<string>;
}

// CSI ... final | OSC ... (BEL or ST) | any other two-character escape | the rest of the control characters but tab.
const CONTROL = /\x1b\[([0-9;:?]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f]/g;
const FLAGS: Record<number, string> = { 1: "ansi-bold", 2: "ansi-dim", 3: "ansi-italic", 4: "ansi-underline" };
const UNFLAGS: Record<number, string[]> = {
  22: ["ansi-bold", "ansi-dim"],
  23: ["ansi-italic"],
  24: ["ansi-underline"],
};

/** Splits a line into pieces of one style each. */
export function parseAnsi(line: string): Piece[] {
  if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(line)) return line ? [{ text: line, classes: [] }] : [];
  const style: Style = { fg: null, bg: null, flags: new Set() };
  const pieces: Piece[] = [];
  let at = 0;
  for (const found of line.matchAll(CONTROL)) {
    push(pieces, line.slice(at, found.index), style);
    at = found.index + found[0].length;
    if (found[2] === "m") apply(style, found[1] ?? "");
  }
  push(pieces, line.slice(at), style);
  return pieces;
}

/** The line without any escape sequence. */
export function stripAnsi(line: string): string {
  return line.replace(CONTROL, "");
}

function push(pieces: Piece[], text: string, style: Style): void {
  if (text) pieces.push({ text, classes: classesOf(style) });
}

function classesOf({ fg, bg, flags }: Style): string[] {
  const classes = [...flags];
  if (fg !== null) classes.push(`ansi-fg-${fg}`);
  if (bg !== null) classes.push(`ansi-bg-${bg}`);
  return classes;
}

function apply(style: Style, parameters: string): void {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i] ?? 0;
    // 38;5;n and 48;5;n choose from 256 colours, of which 16 are supported; 38;2;r;g;b is skipped.
    if (code === 38 || code === 48) i += extended(style, code, codes.slice(i + 1));
    else one(style, code);
  }
}

function extended(style: Style, code: number, rest: number[]): number {
  if (rest[0] === 5) {
    const colour = rest[1] ?? 0;
    style[code === 38 ? "fg" : "bg"] = colour < 16 ? colour : null;
    return 2;
  }
  return rest[0] === 2 ? 4 : 0;
}

function one(style: Style, code: number): void {
  if (code === 0) Object.assign(style, { fg: null, bg: null, flags: new Set() });
  else if (FLAGS[code]) style.flags.add(FLAGS[code]);
  else if (UNFLAGS[code]) for (const flag of UNFLAGS[code]) style.flags.delete(flag);
  else if (code >= 30 && code <= 37) style.fg = code - 30;
  else if (code >= 90 && code <= 97) style.fg = code - 82;
  else if (code === 39) style.fg = null;
  else if (code >= 40 && code <= 47) style.bg = code - 40;
  else if (code >= 100 && code <= 107) style.bg = code - 92;
  else if (code === 49) style.bg = null;
}
