/** The form's mode: a select, the number that some modes have, and an explanation of the mode. */
import { h } from "./core/dom";
import { modeText, parseMode } from "./core/mode";

export class ModeField {
  private readonly select = document.querySelector("select#mode") as HTMLSelectElement;
  private readonly number = document.querySelector("input#mode-number") as HTMLInputElement;
  private readonly numberField = document.querySelector("[data-mode-number]") as HTMLElement;
  private readonly hint = document.querySelector("[data-mode-hint]") as HTMLElement;

  constructor() {
    this.select.addEventListener("input", () => this.choose(this.option()?.dataset["number"] ?? ""));
  }

  owns(element: Element): boolean {
    return element === this.select || element === this.number;
  }

  /** The value in the specification; empty for the default. The server reports a missing number. */
  get value(): string {
    const mode = { name: this.select.value, number: this.number.value.trim() };
    return this.numberField.hidden || mode.number ? modeText(mode) : `${mode.name}()`;
  }

  show(value: string): void {
    const { name, number } = parseMode(value);
    if (![...this.select.options].some((option) => option.value === name)) this.select.append(h("option", { value: name }, name));
    this.select.value = name;
    this.choose(number);
  }

  private option(): HTMLOptionElement | undefined {
    return this.select.selectedOptions[0];
  }

  private choose(number: string): void {
    const { number: usual = "", least = "0", hint = "" } = this.option()?.dataset ?? {};
    this.numberField.hidden = usual === "" && number === "";
    this.number.value = number;
    this.number.min = least;
    this.hint.textContent = hint;
  }
}
