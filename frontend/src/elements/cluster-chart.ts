/**
 * `<cluster-chart span="hour">`: the cores that jobs and services held, stacked, and the total; and the tables beside
 * it.
 */
import Plotly from "plotly.js-basic-dist-min";
import { locale } from "../core/chart-locale";
import { embedded, h } from "../core/dom";
import { getJson } from "../core/http";
import { fill, gettext } from "../core/i18n";
import { short } from "../core/numbers";

interface Strand {
  name: string;
  y: number[];
}

/**
 * `x` in seconds since 1970; `strands` are jobs, `rest` is the sum of all further jobs, `others` the use of further
 * services and of all other pods; empty when there are none.
 */
interface Held {
  x: number[];
  strands: Strand[];
  rest: number[];
  services: Strand[];
  others: number[];
  capacity: number | null;
}

const EVERY_MS = 5000;
// Distinguishable for the colour-blind, on white and on near-black (after Okabe and Ito 2008); then lighter ones.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7f9fd0", "#e8a06a", "#7cc7ab", "#e2b9d0", "#d8c06a"];

// Layers that are no jobs: below all jobs, and without their colours.
const GREYS = ["#5f6b7a", "#8d99a8", "#76808c", "#a9b3bf", "#c3cad3"];

/** A layer of the stack. */
interface Layer extends Strand {
  colour: string;
}

function layers(held: Held): Layer[] {
  const named = (name: string, y: number[]): Strand[] => (y.some((amount) => amount > 0) ? [{ name, y }] : []);
  const services = held.services.map(({ name, y }) => ({ name: fill(gettext("service {name}"), { name }), y }));
  return [
    ...coloured([...services, ...named(gettext("other pods"), held.others)], GREYS),
    ...coloured([...held.strands, ...named(gettext("all other jobs"), held.rest)], COLOURS),
  ];
}

/** No colour: for a dashed line. */
function legendEntry(name: string, colour: string, now: number): HTMLElement {
  const sign = h("span", { class: colour ? "sign" : "sign dashed", "aria-hidden": "true" });
  sign.style.background = colour;
  return h("li", {}, sign, name, now > 0 ? h("b", {}, short(now)) : "");
}

function coloured(strands: Strand[], colours: string[]): Layer[] {
  return strands.map((strand, i) => ({ ...strand, colour: colours[i % colours.length] as string }));
}

export class ClusterChart extends HTMLElement {
  private held: Held | null = null;
  private timer: ReturnType<typeof setInterval> | undefined;
  private readonly plot = h("div", { class: "chart-plot cluster-plot", role: "img" });
  private readonly summary = h("p", { class: "chart-summary quiet", "aria-live": "off" });
  /** The legend below the chart, where names of any length fit. */
  private readonly legend = h("ul", { class: "chart-legend quiet" });
  private readonly draw = (): void => void this.react();

  connectedCallback(): void {
    this.replaceChildren(this.plot, this.legend, this.summary);
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
    // Do not replace a table that has the keyboard focus.
    if (!tables || tables.contains(document.activeElement)) return;
    // Rendered by the portal's own template, which escapes user input.
    tables.innerHTML = answer.tables;
    document.dispatchEvent(new CustomEvent("regatta:rendered"));
  }

  private async react(): Promise<void> {
    const held = this.held;
    if (!held) return;
    this.showSummary(held);
    this.showLegend(held);
    const x = held.x.map((at) => new Date(at * 1000));
    const traces: Plotly.Trace[] = layers(held).map(({ name, y, colour }) => ({
      x,
      y,
      name,
      type: "scatter",
      mode: "lines",
      stackgroup: "held",
      line: { shape: "hv", width: 0.5, color: colour },
      fillcolor: `${colour}b0`,
    }));
    if (held.capacity !== null) {
      const ends = [x[0], x.at(-1)];
      traces.push({ x: ends, y: [held.capacity, held.capacity], name: gettext("capacity"), type: "scatter", mode: "lines", line: { dash: "dash", width: 1.5, color: getComputedStyle(this).getPropertyValue("--quiet").trim() } });
    }
    await Plotly.react(this.plot, traces, this.layout(), {
      displaylogo: false,
      responsive: true,
      displayModeBar: false,
      locale: locale(),
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
      showlegend: false,
      xaxis: { ...axis, type: "date" },
      yaxis: { ...axis, rangemode: "tozero", title: { text: gettext("cores") } },
    };
  }

  /** In the order of the stack, the highest first. */
  private showLegend(held: Held): void {
    const entries = layers(held).reverse().map(({ name, colour, y }) => legendEntry(name, colour, y.at(-1) ?? 0));
    if (held.capacity !== null) entries.unshift(legendEntry(gettext("capacity"), "", held.capacity));
    if (layers(held).length === 0) entries.push(h("li", {}, gettext("No reservations in this period.")));
    this.legend.replaceChildren(...entries);
  }

  private showSummary(held: Held): void {
    const last = held.x.length - 1;
    const now = layers(held).reduce((sum, { y }) => sum + (y[last] ?? 0), 0);
    const all = held.capacity === null ? "" : short(held.capacity);
    const text = held.capacity === null ? fill(gettext("{now} cores reserved now"), { now: short(now) }) : fill(gettext("{now} of {all} cores reserved now"), { now: short(now), all });
    this.summary.textContent = text;
    this.plot.setAttribute("aria-label", text);
  }
}

customElements.define("cluster-chart", ClusterChart);
