/** A mode and its number: `m_of_n(2)` as in a specification. Pure. */

export interface Mode {
  name: string;
  /** Empty when the mode has none. */
  number: string;
}

/** An invalid mode is taken for an unknown name; the server reports the error. */
export function parseMode(text: string): Mode {
  const [, name, number] = /^\s*(\w+)\s*\(\s*(\d*)\s*\)\s*$/.exec(text) ?? [];
  return name ? { name, number: number ?? "" } : { name: text.trim(), number: "" };
}

export function modeText({ name, number }: Mode): string {
  return number === "" ? name : `${name}(${number})`;
}
