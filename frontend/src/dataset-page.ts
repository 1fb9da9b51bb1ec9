/** The page of a dataset while a version of it is looked through: it is shown anew at the end. */
import { getJson } from "./core/http";

const LOOK_MS = 1000;
const address = document.querySelector<HTMLElement>("[data-indexing]")?.dataset["indexing"] ?? "";

const timer = setInterval(() => {
  // Where the portal cannot be reached, it is asked again.
  void getJson<{ state: string }>(address).then(({ state }) => {
    if (state === "indexing") return;
    clearInterval(timer);
    location.reload();
  }, () => undefined);
}, LOOK_MS);
