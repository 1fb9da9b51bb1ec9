/** Formatting of numbers. */
import { language } from "./i18n";

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** 1536 -> "1.5 KiB". */
export function bytes(value: number): string {
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : Number(size.toFixed(1))} ${SIZES[unit]}`;
}

/** At most four significant digits, without trailing zeros. */
export function short(value: number | null | undefined): string {
  if (value == null) return "–";
  return Number.isFinite(value) ? String(Number(value.toPrecision(4))) : String(value);
}

const ORDINAL_ENDINGS: Partial<Record<Intl.LDMLPluralRule, string>> = { one: "st", two: "nd", few: "rd" };

/** "2nd" in English; the bare number in languages with other ordinals. */
export function ordinal(value: number, locale = language()): string {
  if (!locale.startsWith("en")) return String(value);
  return `${value}${ORDINAL_ENDINGS[new Intl.PluralRules("en", { type: "ordinal" }).select(value)] ?? "th"}`;
}
