/** The chip that names a state. */
import { stateLabel } from "./job";

export function paintChip(chip: HTMLElement, state: string): void {
  chip.dataset["state"] = state;
  chip.textContent = stateLabel(state);
}
