/** Times as text. Pure except for the reader's language and time zone. */
import { fill, gettext, language } from "./i18n";

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** "3 minutes ago", in the reader's language. */
export function relative(then: Date, now: Date, locale = language()): string {
  const seconds = (then.getTime() - now.getTime()) / 1000;
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });
  for (const [unit, size] of STEPS) if (Math.abs(seconds) >= size) return format.format(Math.trunc(seconds / size), unit);
  return Math.abs(seconds) < 10 ? gettext("just now") : format.format(Math.trunc(seconds), "second");
}

export function absolute(then: Date, locale = language()): string {
  return then.toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium" });
}

/** A duration: "4.2 s", "3 min 05 s", "2 h 10 min". */
export function duration(seconds: number): string {
  if (seconds < 10) return fill(gettext("{n} s"), { n: seconds.toFixed(1) });
  if (seconds < 60) return fill(gettext("{n} s"), { n: Math.round(seconds) });
  const minutes = Math.floor(seconds / 60);
  const pad = (value: number): string => String(Math.floor(value)).padStart(2, "0");
  if (minutes < 60) return fill(gettext("{m} min {s} s"), { m: minutes, s: pad(seconds % 60) });
  return fill(gettext("{h} h {m} min"), { h: Math.floor(minutes / 60), m: pad(minutes % 60) });
}

/** Updates every `<time data-relative>` and `[data-since]` of the page. */
export function keepTimesTrue(): void {
  const refresh = (): void => {
    const now = new Date();
    for (const element of document.querySelectorAll<HTMLTimeElement>("time[data-relative]")) {
      const then = new Date(element.dateTime);
      element.textContent = relative(then, now);
      element.title = absolute(then);
    }
    for (const element of document.querySelectorAll<HTMLElement>("[data-since]")) {
      const from = new Date(element.dataset["since"] ?? "");
      const until = element.dataset["until"] ? new Date(element.dataset["until"]) : now;
      element.textContent = duration(Math.max(0, (until.getTime() - from.getTime()) / 1000));
    }
  };
  refresh();
  setInterval(refresh, 1000);
  document.addEventListener("regatta:rendered", refresh);
}
