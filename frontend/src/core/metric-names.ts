/** Names of metrics in the order in which they are offered. Pure. */

const RUNTIME = "step/";
const PARTS = new Set(["step/read", "step/compute", "step/wait", "step/push"]);

/**
 * The names without repeats: cost first, then the script's own by name, then the parts of a step. The other names of the
 * runtime are reports on long steps for the portal, and no curves.
 */
export function inOrder(names: string[]): string[] {
  const shown = [...new Set(names)].filter((name) => !name.startsWith(RUNTIME) || PARTS.has(name));
  const rank = (name: string): number => (name === "cost" ? 0 : name.startsWith(RUNTIME) ? 2 : 1);
  return shown.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}
