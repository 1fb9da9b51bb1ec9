/**
 * `<flame-graph>`: a flame graph in SVG. A click or Enter gives a function the whole width, Escape shows all again,
 * the arrow keys lead to callers, callees and neighbours.
 */
import { boxes, towards, treeOf, type Box, type Folded, type Node } from "../core/flame";
import { h } from "../core/dom";
import { fill, gettext } from "../core/i18n";

const ROW = 19;
const LETTER = 6.7; // the width of a letter of the monospace font at 11 pixels
const LEAST_PIXELS = 1.5;
const COLOURS = 8;

export class FlameGraph extends HTMLElement {
  private root: Node | null = null;
  private top: Node | null = null;
  private focused: Node | null = null;
  private readonly svg = svg("svg", { role: "tree", "aria-label": gettext("Flame graph") });
  private readonly chosen = h("p", { class: "flame-chosen quiet", role: "status" });
  private readonly watcher = new ResizeObserver(() => this.draw());
  private drawnWidth = 0;

  connectedCallback(): void {
    this.replaceChildren(this.svg, this.chosen);
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.watcher.observe(this);
  }

  disconnectedCallback(): void {
    this.watcher.disconnect();
  }

  show(stacks: Folded): void {
    this.root = this.top = this.focused = treeOf(stacks);
    this.drawnWidth = 0;
    this.draw();
  }

  private draw(): void {
    const width = this.clientWidth;
    if (!this.root || !this.top || width === 0 || width === this.drawnWidth) return;
    this.drawnWidth = width;
    const found = boxes(this.top, LEAST_PIXELS / width);
    const height = ROW * (1 + Math.max(...found.map((box) => box.depth)));
    this.svg.setAttribute("width", String(width));
    this.svg.setAttribute("height", String(height));
    this.svg.replaceChildren(...found.map((box) => this.boxOf(box, width)));
    this.describe(this.focused ?? this.top);
  }

  private boxOf({ node, depth, left, width }: Box, total: number): SVGElement {
    const pixels = width * total;
    const letters = Math.floor((pixels - 6) / LETTER);
    const name = nameOf(node);
    const label = letters >= 3 ? (name.length > letters ? `${name.slice(0, letters - 1)}…` : name) : "";
    const box = svg("g", {
      role: "treeitem",
      tabindex: node === (this.focused ?? this.top) ? 0 : -1,
      "aria-level": depth + 1,
      "aria-label": this.inWords(node),
      "data-colour": colourOf(node),
    });
    box.append(
      svg("rect", { x: left * total, y: depth * ROW, width: Math.max(0.5, pixels - 1), height: ROW - 1, rx: 2 }),
      svg("title", {}, this.inWords(node)),
      ...(label ? [svg("text", { x: left * total + 4, y: depth * ROW + 13 }, label)] : []),
    );
    nodes.set(box, node);
    box.addEventListener("click", () => this.zoom(node));
    box.addEventListener("focus", () => this.describe(node));
    return box;
  }

  private zoom(node: Node): void {
    this.top = this.focused = node;
    this.redraw();
  }

  private onKey(event: KeyboardEvent): void {
    const node = nodes.get(event.target as Element);
    if (!node || !this.root) return;
    if (event.key === "Enter" || event.key === " ") this.zoom(node);
    else if (event.key === "Escape") {
      this.top = this.root;
      this.focused = node;
      this.redraw();
    } else {
      const next = towards(node, event.key);
      if (!next) return;
      this.focus(next);
    }
    event.preventDefault();
  }

  /** Moves the focus; a function that is not drawn gets the width of its caller first. */
  override focus(node?: Node | FocusOptions): void {
    if (!node || !("children" in node)) return super.focus(node as FocusOptions);
    this.focused = node;
    if (!this.elementOf(node) && node.parent) this.top = node.parent;
    this.redraw();
  }

  private redraw(): void {
    this.drawnWidth = 0;
    this.draw();
    const element = this.focused && this.elementOf(this.focused);
    (element as SVGElement | null)?.focus();
  }

  private elementOf(node: Node): Element | null {
    return [...this.svg.children].find((element) => nodes.get(element) === node) ?? null;
  }

  private describe(node: Node): void {
    this.chosen.textContent = this.inWords(node);
    for (const element of this.svg.children) element.setAttribute("tabindex", nodes.get(element) === node ? "0" : "-1");
  }

  private inWords(node: Node): string {
    const share = ((100 * node.count) / (this.root?.count || 1)).toFixed(1);
    return fill(gettext("{name}: {share} % of {total} samples"), { name: nameOf(node), share, total: this.root?.count ?? 0 });
  }
}

const nodes = new WeakMap<Element, Node>();

function nameOf(node: Node): string {
  return node.parent ? node.name : gettext("All");
}

/** The same function has the same colour everywhere. */
function colourOf(node: Node): number {
  let hash = 0;
  for (const letter of node.name) hash = (hash * 31 + (letter.codePointAt(0) ?? 0)) | 0;
  return Math.abs(hash) % COLOURS;
}

function svg(tag: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

customElements.define("flame-graph", FlameGraph);
