/**
 * The document that xterm.js creates its elements with (build.mjs). The content security policy allows styles with the
 * page's nonce and through the object model. xterm.js adds style elements without a nonce and sets style attributes as
 * text.
 */
import { nonce } from "./dom";

export function styledDocument(): Document {
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return createElement;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value as (...given: unknown[]) => unknown).bind(target) : value;
    },
  });
}

function createElement(tag: string): HTMLElement {
  const element = document.createElement(tag);
  if (tag === "style") element.nonce = nonce();
  element.setAttribute = (name, value) => {
    if (name === "style") element.style.cssText = value;
    else Element.prototype.setAttribute.call(element, name, value);
  };
  return element;
}
