/** Texts of the scripts. Django's JavaScript catalogue is loaded before this in every language but English. */

interface Catalogue {
  gettext(text: string): string;
}

declare global {
  interface Window {
    django?: Catalogue;
  }
}

/** The text in the reader's language; English is its own key. */
export function gettext(text: string): string {
  return typeof window === "undefined" ? text : (window.django?.gettext(text) ?? text);
}

/** Replaces each `{name}` with its value. */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export function language(): string {
  return document.documentElement.lang || "en";
}
