/** `<cluster-chart span="hour">`: the cores that jobs held, stacked, and how many there are; and the tables beside it. */
import Plotly from "plotly.js-basic-dist-min";
import { embedded, h } from "../core/dom";
import { getJson } from "../core/http";
import { fill, gettext, language } from "../core/i18n";
import { short } from "../core/numbers";

interface Strand {
  name: string;
  y: number[];
}

/** `x` in seconds since 1970; `rest` is what all others held together, empty where there are none. */
interface Held {
  x: number[];
  strands: Strand[];
  rest: number[];
  capacity: number | null;
}

const EVERY_MS = 5000;
// Distinguishable for the colour-blind, on white and on near-black (after Okabe and Ito 2008); then lighter ones.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7f9fd0", "#e8a06a", "#7cc7ab", "#e2b9d0", "#d8c06a"];

export class ClusterChart extends HTMLElement {
  private held: Held | null = null;
  private timer: ReturnType<typeof setInterval> | undefined;
  private readonly plot = h("div", { class: "chart-plot cluster-plot", role: "img" });
  private readonly summary = h("p", { class: "chart-summary quiet", "aria-live": "off" });
  private readonly draw = (): void => void this.react();

  connectedCallback(): void {
    this.replaceChildren(this.plot, this.summary);
    this.held = embedded<Held>("cluster-data");
    this.draw();
    this.timer = setInterval(() => void this.look(), EVERY_MS);
    document.addEventListener("regatta:theme", this.draw);
  }

  disconnectedCallback(): void {
    clearInterval(this.timer);
    Plotly.purge(this.plot);
    document.removeEventListener("regatta:theme", this.draw);
  }

  private async look(): Promise<void> {
    if (document.hidden) return;
    const query = new URLSearchParams({ span: this.getAttribute("span") ?? "" });
    const answer = await getJson<{ chart: Held; tables: string }>(`/admin/cluster/now?${query}`).catch(() => null);
    if (!answer) return;
    this.held = answer.chart;
    this.draw();
    const tables = document.querySelector<HTMLElement>("[data-cluster-tables]");
    // Not under the hands of who is in them by keyboard.
    if (!tables || tables.contains(document.activeElement)) return;
    // Made by the portal's own template, which escapes what people wrote.
    tables.innerHTML = answer.tables;
    document.dispatchEvent(new CustomEvent("regatta:rendered"));
  }

  private async react(): Promise<void> {
    const held = this.held;
    if (!held) return;
    this.showSummary(held);
    const x = held.x.map((at) => new Date(at * 1000));
    const strands = held.rest.some((amount) => amount > 0) ? [...held.strands, { name: gettext("all others"), y: held.rest }] : held.strands;
    const traces: Plotly.Trace[] = strands.map(({ name, y }, i) => ({
      x,
      y,
      name,
      type: "scatter",
      mode: "lines",
      stackgroup: "held",
      line: { shape: "hv", width: 0.5, color: COLOURS[i % COLOURS.length] },
      fillcolor: `${COLOURS[i % COLOURS.length]}b0`,
    }));
    if (held.capacity !== null) {
      const ends = [x[0], x.at(-1)];
      traces.push({ x: ends, y: [held.capacity, held.capacity], name: gettext("there are"), type: "scatter", mode: "lines", line: { dash: "dash", width: 1.5 } });
    }
    await Plotly.react(this.plot, traces, this.layout(), {
      displaylogo: false,
      responsive: true,
      displayModeBar: false,
      locale: language().startsWith("zh") ? "zh-CN" : "en",
    });
  }

  private layout(): Plotly.Layout {
    const style = getComputedStyle(this);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), zeroline: false, linecolor: colour("--line"), automargin: true };
    return {
      uirevision: "held",
      autosize: true,
      margin: { l: 48, r: 16, t: 12, b: 36 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: style.fontFamily, size: 12, color: colour("--quiet") },
      hovermode: "x unified",
      hoverlabel: { bgcolor: colour("--surface"), font: { color: colour("--text") } },
      showlegend: true,
      legend: { orientation: "h", y: -0.14, x: 0 },
      xaxis: { ...axis, type: "date" },
      yaxis: { ...axis, rangemode: "tozero", title: { text: gettext("cores") } },
    };
  }

  private showSummary(held: Held): void {
    const last = held.x.length - 1;
    const now = [...held.strands.map(({ y }) => y), held.rest].reduce((sum, y) => sum + (y[last] ?? 0), 0);
    const all = held.capacity === null ? "" : short(held.capacity);
    const text = held.capacity === null ? fill(gettext("{now} cores are held now"), { now: short(now) }) : fill(gettext("{now} of {all} cores are held now"), { now: short(now), all });
    this.summary.textContent = text;
    this.plot.setAttribute("aria-label", text);
  }
}

customElements.define("cluster-chart", ClusterChart);
