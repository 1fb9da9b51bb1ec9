/** A flame graph from folded stacks: a tree of functions with counts, and the boxes to draw. Pure. */

/** Folded stacks (`thread;outer;inner`) with their counts. */
export type Folded = Record<string, number>;

export interface Node {
  name: string;
  count: number;
  parent: Node | null;
  children: Node[];
}

/** A node with its row and its share of the width, from 0 to 1. */
export interface Box {
  node: Node;
  depth: number;
  left: number;
  width: number;
}

/** The sum of several recordings; each gets its replica's name as the outermost part if there are several. */
export function merged(recordings: { replica: string; stacks: Folded }[]): Folded {
  const total: Folded = Object.create(null) as Folded;
  for (const { replica, stacks } of recordings)
    for (const [stack, count] of Object.entries(stacks)) {
      const key = recordings.length > 1 ? `${replica};${stack}` : stack;
      total[key] = (total[key] ?? 0) + count;
    }
  return total;
}

/** The tree below a root with an empty name. Children are in order of their names, as in other flame graphs. */
export function treeOf(stacks: Folded): Node {
  const root: Node = { name: "", count: 0, parent: null, children: [] };
  const known = new Map<Node, Map<string, Node>>();
  for (const [stack, count] of Object.entries(stacks)) {
    root.count += count;
    let at = root;
    for (const name of stack.split(";")) {
      const siblings = known.get(at) ?? new Map<string, Node>();
      known.set(at, siblings);
      let next = siblings.get(name);
      if (!next) {
        next = { name, count: 0, parent: at, children: [] };
        siblings.set(name, next);
        at.children.push(next);
      }
      next.count += count;
      at = next;
    }
  }
  for (const node of known.keys()) node.children.sort((one, other) => (one.name < other.name ? -1 : 1));
  return root;
}

/** The boxes when `top` has the whole width, with the nodes above it; those narrower than `least` are left out. */
export function boxes(top: Node, least: number): Box[] {
  const above: Node[] = [];
  for (let node = top.parent; node; node = node.parent) above.unshift(node);
  const found: Box[] = above.map((node, depth) => ({ node, depth, left: 0, width: 1 }));
  const waiting: Box[] = [{ node: top, depth: above.length, left: 0, width: 1 }];
  for (let box = waiting.pop(); box; box = waiting.pop()) {
    found.push(box);
    let { left } = box;
    for (const node of box.node.children) {
      const width = (box.width * node.count) / (box.node.count || 1);
      if (width >= least) waiting.push({ node, depth: box.depth + 1, left, width });
      left += width;
    }
  }
  return found;
}

/** The node that an arrow key leads to: up to the caller, down to the largest callee, sideways to a neighbour. */
export function towards(node: Node, key: string): Node | null {
  if (key === "ArrowUp") return node.parent;
  if (key === "ArrowDown") return node.children.reduce<Node | null>((most, one) => (most && most.count >= one.count ? most : one), null);
  const siblings = node.parent?.children ?? [];
  const by = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  return by ? (siblings[siblings.indexOf(node) + by] ?? null) : null;
}

/** The lines of the usual folded format, for other tools. */
export function foldedText(stacks: Folded): string {
  return Object.entries(stacks)
    .map(([stack, count]) => `${stack} ${count}\n`)
    .join("");
}
