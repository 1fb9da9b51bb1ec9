/** A mode and its number: `m_of_n(2)` as a specification writes it. Pure. */

export interface Mode {
  name: string;
  /** Empty where the mode has none. */
  number: string;
}

/** What is no mode is a name that nobody knows; the server says so. */
export function parseMode(text: string): Mode {
  const [, name, number] = /^\s*(\w+)\s*\(\s*(\d*)\s*\)\s*$/.exec(text) ?? [];
  return name ? { name, number: number ?? "" } : { name: text.trim(), number: "" };
}

export function modeText({ name, number }: Mode): string {
  return number === "" ? name : `${name}(${number})`;
}
