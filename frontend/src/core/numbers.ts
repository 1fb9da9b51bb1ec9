/** Numbers for people. */

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
