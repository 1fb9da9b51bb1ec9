/** What went wrong with a request, as a message for the reader. */
import { ApiError } from "./http";
import { gettext } from "./i18n";

/** What is said of the fields, else of the request as a whole. */
export function messageOf(error: unknown): string {
  if (!(error instanceof ApiError)) return gettext("The portal cannot be reached. Try again.");
  return Object.values(error.problem.errors ?? {}).flat().join(" ") || error.problem.detail;
}
