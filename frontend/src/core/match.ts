/** Search for a text in a line. Pure. */

/** Start and end of a match. */
export type Place = [number, number];

/** Returns the matches in a text; none when the query is empty. */
export type Matcher = (text: string) => Place[];

/**
 * A search function for `query`: literal and case-insensitive, or (`regex`) an expression. The server decides which
 * expressions are valid; one that only the server supports has no matches here.
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
