/** The HTTP API, from the page: same origin, session cookie, CSRF token, problems as one error type. */

/** `application/problem+json` as the API returns it. */
export interface Problem {
  code: string;
  detail: string;
  status: number;
  errors?: Record<string, string[]>;
  /** Places in files, by the path of the field (`files.train.py`). */
  positions?: Record<string, { line: number; column: number }>;
  /** With `exists`: the number of the other file. */
  id?: number;
}

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

/** Throws ApiError for an answer that is no success, TypeError when the portal cannot be reached. */
export async function getJson<Value>(url: string, signal?: AbortSignal): Promise<Value> {
  return read<Value>(await fetch(url, { headers: { Accept: "application/json" }, ...(signal ? { signal } : {}) }));
}

/** Like getJson, but POST with a JSON body. `key` makes a repeated submit idempotent. */
export async function postJson<Value>(url: string, body: unknown, key = "", signal?: AbortSignal): Promise<Value> {
  const headers = { ...changing(), "Content-Type": "application/json", ...(key ? { "Idempotency-Key": key } : {}) };
  return read<Value>(await fetch(url, { method: "POST", headers, body: JSON.stringify(body), ...(signal ? { signal } : {}) }));
}

/** Uploads bytes and reports how many are in transit, which fetch cannot. Throws like getJson. */
export function putBytes(url: string, body: Blob, more: Record<string, string>, progress: (sent: number) => void, signal: AbortSignal): Promise<void> {
  return new Promise((done, refuse) => {
    const request = new XMLHttpRequest();
    request.open("PUT", url);
    const headers = { ...changing(), "Content-Type": "application/octet-stream", ...more };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    const stop = (): void => request.abort();
    signal.addEventListener("abort", stop);
    request.upload.addEventListener("progress", (event) => progress(event.loaded));
    request.addEventListener("load", () => {
      if (request.status >= 200 && request.status < 300) done();
      else refuse(new ApiError(problemOf(request, request.responseText)));
    });
    request.addEventListener("error", () => refuse(new TypeError("The portal cannot be reached.")));
    request.addEventListener("abort", () => refuse(new DOMException("Paused.", "AbortError")));
    request.addEventListener("loadend", () => signal.removeEventListener("abort", stop));
    if (signal.aborted) refuse(new DOMException("Paused.", "AbortError"));
    else request.send(body);
  });
}

/** Like getJson, but DELETE. */
export async function deleteJson<Value>(url: string): Promise<Value> {
  return read<Value>(await fetch(url, { method: "DELETE", headers: changing() }));
}

/** The headers of a request that changes data. */
function changing(): Record<string, string> {
  return { Accept: "application/json", "X-CSRFToken": csrfToken() };
}

function csrfToken(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="csrf-token"]')?.content ?? "";
}

async function read<Value>(response: Response): Promise<Value> {
  const text = await response.text();
  if (response.ok) return (text ? JSON.parse(text) : null) as Value;
  throw new ApiError(problemOf(response, text));
}

function problemOf(response: Pick<Response, "status" | "statusText">, text: string): Problem {
  try {
    const problem = JSON.parse(text) as Partial<Problem>;
    return { code: "error", detail: response.statusText, ...problem, status: response.status };
  } catch {
    return { code: "error", detail: `${response.status} ${response.statusText}`, status: response.status };
  }
}
