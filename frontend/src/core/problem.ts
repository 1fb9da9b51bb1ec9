/** The error of a request, as a message for the reader. */
import { ApiError } from "./http";
import { gettext } from "./i18n";

/** The messages of the fields, else that of the request as a whole. */
export function messageOf(error: unknown): string {
  if (!(error instanceof ApiError)) return gettext("The portal cannot be reached. Try again.");
  return Object.values(error.problem.errors ?? {}).flat().join(" ") || error.problem.detail;
}
