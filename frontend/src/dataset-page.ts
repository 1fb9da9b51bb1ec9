/** The page of a dataset while one of its versions is indexed: it is reloaded at the end. */
import { getJson } from "./core/http";

const LOOK_MS = 1000;
const address = document.querySelector<HTMLElement>("[data-indexing]")?.dataset["indexing"] ?? "";

const timer = setInterval(() => {
  // When the portal cannot be reached, the request is repeated.
  void getJson<{ state: string }>(address).then(({ state }) => {
    if (state === "indexing") return;
    clearInterval(timer);
    location.reload();
  }, () => undefined);
}, LOOK_MS);
