/** Finding what a reader looks for in a line. Pure. */

/** From where to where. */
export type Place = [number, number];

/** Gives the places in a text; nothing where the query is empty. */
export type Matcher = (text: string) => Place[];

/**
 * What looks for `query`: as it is written, whatever the case, or (`regex`) as an expression. The server has the last
 * word on expressions; one that only it understands finds no place here.
 */
export function matcher(query: string, regex: boolean): Matcher {
  const expression = query && compiled(query, regex);
  if (!expression) return () => [];
  return (text) => [...text.matchAll(expression)].filter(([found]) => found).map(({ 0: found, index }) => [index, index + found.length]);
}

function compiled(query: string, regex: boolean): RegExp | null {
  if (!regex) return new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  try {
    return new RegExp(query, "gu");
  } catch {
    return null;
  }
}
