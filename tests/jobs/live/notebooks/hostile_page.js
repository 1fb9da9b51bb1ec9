// Attacks of a notebook's page on the portal. Each returns "" if it is stopped, and else what it has reached.
const readable = async (url, options) => {
  try {
    const answer = await fetch(url, options);
    return answer.type === "opaque" ? "" : `${answer.status} ${(await answer.text()).slice(0, 50)}`;
  } catch {
    return "";
  }
};
const withCredentials = { credentials: "include" };
const socket = (url) =>
  new Promise((resolve) => {
    try {
      const link = new WebSocket(url);
      link.onmessage = (event) => resolve(String(event.data));
      link.onclose = link.onerror = () => resolve("");
    } catch {
      resolve("");
    }
  });
const framed = (url) =>
  new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.onload = () => {
      try {
        const text = frame.contentDocument.body.innerText;
        resolve(text.includes("digits") || text.includes("Jobs") ? text.slice(0, 50) : "");
      } catch {
        resolve("");
      }
    };
    setTimeout(() => resolve(""), 3000);
    frame.src = url;
    document.documentElement.append(frame);
  });
const tossed = (domain) => {
  document.cookie = `regatta-session=tossed; path=/; domain=${domain}`;
  return document.cookie.includes("tossed") && domain === "localhost" ? document.cookie : "";
};
async function attacks() {
  const ownSocket = PORTAL.replace("http", "ws");
  return {
    "own server": String((await fetch(location.href)).status),
    "read the API of the portal": await readable(`${PORTAL}/api/v1/me`, withCredentials),
    "create a token": await readable(`${PORTAL}/api/v1/me/tokens`, { ...withCredentials, method: "POST", body: "{}" }),
    "read another host": await readable("http://evil.localhost:9/", {}),
    "the API on the own origin": (await fetch("/api/v1/me")).status === 404 ? "" : "reached",
    "the websocket of the portal": await socket(`${ownSocket}/ws/v1/stream`),
    "the websocket on the own origin": await socket(`ws://${location.host}/ws/v1/stream`),
    "read its own cookie": document.cookie.includes("regatta") ? document.cookie : "",
    "a frame with the portal": await framed(`${PORTAL}/n/team/jobs`),
    "a cookie for the portal": tossed("localhost"),
  };
}
