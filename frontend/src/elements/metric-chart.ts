/**
 * `<metric-chart job="...">`: the curves of a job. History is read reduced over HTTP, the rest over the socket strictly
 * after it; a zoom requests finer data. Plotly draws at most twice a second, and not at all while the page is hidden.
 */
import Plotly from "plotly.js-basic-dist-min";
import { emptySeries, LiveSeries, smooth, type Series } from "../core/buckets";
import { Cursor } from "../core/cursor";
import { debounce, embedded, h } from "../core/dom";
import { getJson } from "../core/http";
import { locale } from "../core/chart-locale";
import { fill, gettext, language } from "../core/i18n";
import { dateOf, isTerminal, type Job, type JobEvent, type MetricPoint } from "../core/job";
import { theLive } from "../core/live";
import { stepAfter } from "../core/marks";
import { inOrder } from "../core/metric-names";
import { short } from "../core/numbers";
import { followTimeline } from "../core/timeline";
import { movesTrainers, trainersOverTime } from "../core/trainers";

type Axis = "step" | "elapsed" | "wall";

interface MetricsAnswer {
  series: Record<string, Series>;
  next: number;
  /** The width of the buckets. */
  width: number;
  /** Metrics that the answer leaves out because it is full. */
  left_out: string[];
}

/** Attempt -> key -> series. */
type History = Map<number, Map<string, LiveSeries>>;

/** An event at its place on the axis; `loud` marks a change of the curve, `labelled` shows its text above the curve. */
interface Mark {
  x: number | string;
  text: string;
  loud: boolean;
  labelled: boolean;
  /** In the left half of the chart: the text fits on its right. */
  early: boolean;
}

const DRAW_MS = 600;
const BUCKETS = 1000;
const ATTEMPTS_SHOWN = 3;
const PLACING_BUCKETS = 5000;
const TABLE_ROWS = 20;
/** How many of the omitted metrics are named. */
const NAMES_LISTED = 3;
/** The metric below the chosen curve, when it is reported: the effect of a change of the trainers. */
const SPEED = "records_per_second";
/** The parts of the height for the chosen curve and, below it, the speed. */
const DOMAINS: Record<"alone" | "withSpeed" | "withTrainers", [[number, number], [number, number]]> = {
  alone: [[0, 1], [0, 0]],
  withSpeed: [[0.34, 1], [0, 0.22]],
  withTrainers: [[0.49, 1], [0.24, 0.39]],
};
const LOUD = new Set(["scaled"]);
// The newest loud marks have a text, each on a line of its own above the curve; the others have a symbol.
const LINES_OF_WORDS = 3;
const WORD_LINE = 0.045;
// Approximate width of each character in a line of text, in pixels.
const LATIN_PX = 6.5;
const CJK_PX = 12.5;
// Distinguishable for the colour-blind, on white and on near-black (after Okabe and Ito 2008).
const COLOURS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9"],
  dark: ["#56b4e9", "#f0863a", "#3ccf9f", "#e2a0c6", "#e6c34a", "#9ad0f5"],
};

export class MetricChart extends HTMLElement {
  private jobId = "";
  private job: Job | null = null;
  private axis: Axis = "step";
  private smoothing = 0;
  private logY = false;
  private key = "";
  private zoom: [number, number] | null = null;
  /** The whole run; on the time axes x counts from 1970. */
  private history: History = new Map();
  /** The same for the zoomed part. */
  private detail: History | null = null;
  private cursor = new Cursor(0);
  /** The origin of the axis of elapsed time: the time of the first point. */
  private base = 0;
  private events: JobEvent[] = [];
  /** The steps of loud events, by their time. */
  private steps = new Map<string, number>();
  private placing = false;
  private dirty = true;
  private stop: (() => void) | undefined;
  private timer: ReturnType<typeof setInterval> | undefined;
  private generation = 0;
  private readonly plot = h("div", { class: "chart-plot", role: "img" });
  private readonly picker = h("div", { class: "segmented", role: "group", "aria-label": gettext("Metric") });
  private readonly summary = h("p", { class: "chart-summary quiet", "aria-live": "off" });
  private readonly omission = h("p", { class: "chart-omission quiet", role: "note", hidden: true });
  private readonly table = h("div", { class: "chart-table" });
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private readonly onJob = (event: Event): void => void this.jobChanged((event as CustomEvent<Job>).detail);
  private readonly onTheme = (): void => void (this.dirty = true);

  connectedCallback(): void {
    this.jobId = this.getAttribute("job") ?? "";
    this.job = embedded<Job>("job-data");
    this.replaceChildren(this.toolbar(), this.plot, this.summary, this.omission, this.dataTable());
    document.addEventListener("regatta:job", this.onJob);
    document.addEventListener("regatta:theme", this.onTheme);
    this.dark.addEventListener("change", this.onTheme);
    this.timer = setInterval(() => this.drawIfNeeded(), DRAW_MS);
    void this.load();
    followTimeline((events) => {
      this.events = events;
      this.dirty = true;
    });
  }

  disconnectedCallback(): void {
    this.stop?.();
    clearInterval(this.timer);
    Plotly.purge(this.plot);
    document.removeEventListener("regatta:job", this.onJob);
    document.removeEventListener("regatta:theme", this.onTheme);
    this.dark.removeEventListener("change", this.onTheme);
  }

  // --- Data ---------------------------------------------------------------------------------------------------------

  private async load(): Promise<void> {
    const generation = ++this.generation;
    try {
      const { history, next, leftOut } = await this.fetchAll();
      if (generation !== this.generation) return;
      this.showOmission(leftOut);
      this.base = this.axis === "elapsed" ? firstX(history) : 0;
      this.history = history;
      this.cursor = new Cursor(next);
      this.listen();
      this.draw();
    } catch {
      this.summary.textContent = gettext("The chart could not be loaded. Retrying.");
      setTimeout(() => this.isConnected && generation === this.generation && void this.load(), 3000);
    }
  }

  /**
   * Loads all attempts that are shown, newest last. `next` is where the live points begin: the smallest cursor of the
   * answers.
   */
  private async fetchAll(range?: [number, number]): Promise<{ history: History; next: number; leftOut: string[] }> {
    const newest = this.newest();
    const history: History = new Map();
    const leftOut = new Set<string>();
    let next = Infinity;
    for (let attempt = Math.max(1, newest - ATTEMPTS_SHOWN + 1); attempt <= newest; attempt += 1) {
      const answer = await this.fetchOne(attempt, range);
      const ofAttempt = Object.entries(answer.series).map(([key, series]) => [key, new LiveSeries(series, answer.width)] as const);
      history.set(attempt, new Map(ofAttempt));
      for (const key of answer.left_out) leftOut.add(key);
      next = Math.min(next, answer.next);
    }
    return { history, next: Number.isFinite(next) ? next : 0, leftOut: [...leftOut] };
  }

  private async fetchOne(attempt: number, [from, to]: [number, number] | [null, null] = [null, null]): Promise<MetricsAnswer> {
    const x = this.axis === "step" ? "step" : "wall";
    const query = new URLSearchParams({ x, buckets: String(BUCKETS), attempt: String(attempt) });
    if (from !== null && Number.isFinite(from)) query.set("from", String(from));
    if (to !== null && Number.isFinite(to)) query.set("to", String(to));
    const answer = await getJson<MetricsAnswer>(`/api/v1/jobs/${this.jobId}/metrics?${query}`);
    for (const series of Object.values(answer.series)) onlyNumbers(series);
    return answer;
  }

  private newest(): number {
    return Math.max(1, this.job?.attempt ?? 1);
  }

  /** Without a socket: only the end of the newest attempt is read again. */
  private async readOn(): Promise<void> {
    const attempt = this.newest();
    const known = this.history.get(attempt);
    if (!known?.size) return this.load();
    const generation = this.generation;
    const from = Math.min(...[...known.values()].map((series) => series.tail()));
    const answer = await this.fetchOne(attempt, [from, Infinity]);
    if (generation !== this.generation) return;
    for (const [key, tail] of Object.entries(answer.series)) seriesOf(this.history, attempt, key).replaceFrom(from, tail, answer.width);
    this.cursor.skipTo(answer.next);
    this.dirty = true;
  }

  private listen(): void {
    this.stop?.();
    this.stop = theLive().subscribe({
      stream: "metrics",
      job: this.jobId,
      after: () => this.cursor.after,
      onFrame: (frame) => {
        if (frame.t === "metrics") this.take(frame.points, frame.hi);
        // Points were lost for good, or the cursor is of other data: start again from the available data.
        if (frame.t === "gap" || (frame.t === "error" && frame.code === "cursor_beyond_head")) void this.load();
      },
      poll: () => this.readOn(),
    });
  }

  private take(points: MetricPoint[], hi: number): void {
    for (const point of this.cursor.take(points, hi)) {
      const x = this.xOf(point);
      for (const history of this.detail && this.inZoom(x) ? [this.history, this.detail] : [this.history]) {
        seriesOf(history, point.attempt, point.key).add(x, finite(point.value));
      }
      this.dirty = true;
    }
  }

  private inZoom(x: number): boolean {
    return this.zoom !== null && x >= this.zoom[0] && x <= this.zoom[1];
  }

  private xOf(point: MetricPoint): number {
    return this.axis === "step" ? point.step : dateOf(point.time).getTime() / 1000;
  }

  private async jobChanged(job: Job): Promise<void> {
    const another = this.job !== null && (job.attempt !== this.job.attempt || (job.started !== null && !this.job.started));
    const ended = isTerminal(job.state) && !isTerminal(this.job?.state ?? "");
    this.job = job;
    if (another || ended) await this.load();
  }

  /** Loud events have a place on the axis of steps too, between the points before and after them. */
  private async place(): Promise<void> {
    const key = orderedKeys(this.history)[0];
    const homeless = this.placedEvents().filter((event) => !this.steps.has(event.time) && this.history.has(event.attempt));
    if (this.axis !== "step" || this.placing || !key || homeless.length === 0) return;
    this.placing = true;
    try {
      for (const attempt of new Set(homeless.map((event) => event.attempt))) {
        await this.placeIn(attempt, key, homeless.filter((event) => event.attempt === attempt));
      }
    } catch {
      // The next points request it again.
    }
    this.placing = false;
  }

  private async placeIn(attempt: number, key: string, events: JobEvent[]): Promise<void> {
    const ask = { keys: key, attempt: String(attempt), buckets: String(PLACING_BUCKETS) };
    const of = (x: string): Promise<MetricsAnswer> =>
      getJson(`/api/v1/jobs/${this.jobId}/metrics?${new URLSearchParams({ ...ask, x })}`);
    const [byTime, bySteps] = (await Promise.all([of("wall"), of("step")])).map((answer) => answer.series[key] ?? emptySeries());
    for (const event of events) {
      const step = stepAfter(dateOf(event.time).getTime() / 1000, byTime as Series, bySteps as Series);
      if (step !== null) this.steps.set(event.time, step);
    }
    this.dirty = true;
  }

  /** Events that have a place on the axis of steps. */
  private placedEvents(): JobEvent[] {
    return this.wantsTrainers() ? this.events.filter((event) => LOUD.has(event.kind) || movesTrainers(event)) : this.loudEvents();
  }

  private loudEvents(): JobEvent[] {
    return this.events.filter((event) => LOUD.has(event.kind));
  }

  private readonly refine = debounce(() => {
    const range = this.zoom;
    if (!range) return;
    this.fetchAll(range)
      .then(({ history }) => {
        if (this.zoom !== range) return;
        this.detail = history;
        this.draw();
      })
      .catch(() => undefined);
  }, 250);

  // --- Controls -----------------------------------------------------------------------------------------------------

  private toolbar(): HTMLElement {
    return h(
      "div",
      { class: "toolbar" },
      this.picker,
      h("span", { class: "spacer" }),
      this.axisPicker(),
      this.smoothingSlider(),
      this.logToggle(),
      h("a", { class: "button small", href: `/api/v1/jobs/${this.jobId}/metrics.csv`, download: true }, "CSV"),
      h("button", { class: "button small", type: "button", onclick: () => this.savePng() }, "PNG"),
    );
  }

  private axisPicker(): HTMLElement {
    const choices: [Axis, string][] = [
      ["step", gettext("Step")],
      ["elapsed", gettext("Elapsed")],
      ["wall", gettext("Clock")],
    ];
    const select = h("select", {
      class: "small",
      "aria-label": gettext("Horizontal axis"),
      onchange: () => this.chooseAxis(select.value as Axis),
    });
    for (const [value, label] of choices) select.append(h("option", { value }, label));
    return select;
  }

  private chooseAxis(axis: Axis): void {
    this.axis = axis;
    this.zoom = null;
    this.detail = null;
    void this.load();
  }

  private smoothingSlider(): HTMLElement {
    const input = h("input", {
      type: "range",
      min: 0,
      max: 0.99,
      step: 0.01,
      value: 0,
      oninput: () => {
        this.smoothing = Number(input.value);
        this.dirty = true;
      },
    });
    return h("label", { class: "inline" }, gettext("Smooth"), input);
  }

  private logToggle(): HTMLElement {
    const input = h("input", {
      type: "checkbox",
      onchange: () => {
        this.logY = input.checked;
        this.draw();
      },
    });
    return h("label", { class: "inline" }, input, gettext("Log scale"));
  }

  private showPicker(keys: string[]): void {
    const shown = [...this.picker.children].map((child) => child.getAttribute("data-key"));
    if (shown.join("\n") !== keys.join("\n")) {
      this.picker.replaceChildren(
        ...keys.map((key) => h("button", { type: "button", "data-key": key, onclick: () => this.chooseKey(key) }, key)),
      );
    }
    for (const child of this.picker.children) {
      child.setAttribute("aria-pressed", String(child.getAttribute("data-key") === this.key));
    }
  }

  private chooseKey(key: string): void {
    this.key = key;
    this.zoom = null;
    this.detail = null;
    this.draw();
  }

  private savePng(): void {
    void Plotly.downloadImage(this.plot, { format: "png", width: 1400, height: 700, filename: `${this.job?.name ?? "job"}-${this.key}` });
  }

  private dataTable(): HTMLElement {
    const details = h("details", { class: "quiet-details" }, h("summary", {}, gettext("Latest values as a table")), this.table);
    details.addEventListener("toggle", () => details.open && this.showTable());
    return details;
  }

  // --- Drawing ------------------------------------------------------------------------------------------------------

  private drawIfNeeded(): void {
    if (!this.dirty || document.hidden) return;
    this.draw();
    void this.place();
  }

  private draw(): void {
    this.dirty = false;
    const keys = orderedKeys(this.history);
    if (!keys.includes(this.key)) this.key = keys[0] ?? "";
    this.showPicker(keys);
    this.showSummary();
    this.showTable();
    void Plotly.react(this.plot, this.traces(), this.layout(), {
      displaylogo: false,
      responsive: true,
      locale: locale(),
      modeBarButtonsToRemove: ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d", "toImage"],
    }).then(() => this.listenToZoom());
  }

  private listening = false;

  private listenToZoom(): void {
    if (this.listening) return;
    this.listening = true;
    (this.plot as unknown as Plotly.PlotElement).on("plotly_relayout", (change) => this.zoomed(change));
  }

  private zoomed(change: Record<string, unknown>): void {
    if (change["xaxis.autorange"] === true) {
      this.zoom = null;
      this.detail = null;
      this.draw();
      return;
    }
    const from = this.fromAxis(change["xaxis.range[0]"]);
    const to = this.fromAxis(change["xaxis.range[1]"]);
    if (from === null || to === null) return;
    this.zoom = [from, to];
    this.refine();
  }

  private fromAxis(value: unknown): number | null {
    if (value === undefined) return null;
    // Plotly writes dates without a zone; this chart draws them in local time.
    return this.axis === "wall" ? new Date(String(value).replace(" ", "T")).getTime() / 1000 : Number(value) + this.base;
  }

  private onAxis(x: number): number | string {
    return this.axis === "wall" ? localTime(x) : x - this.base;
  }

  private traces(): Plotly.Trace[] {
    const shown = this.detail ?? this.history;
    const newest = Math.max(...shown.keys());
    const traces: Plotly.Trace[] = [];
    for (const [attempt, series] of shown) {
      for (const [key, yaxis] of this.hasSpeed() ? ([[this.key, "y"], [SPEED, "y2"]] as const) : ([[this.key, "y"]] as const)) {
        const data = series.get(key);
        if (data?.length) traces.push(...this.tracesOf(key, yaxis, data.shown(), attempt, attempt === newest));
      }
      if (this.hasTrainers()) traces.push(this.trainersOf(attempt));
    }
    return traces;
  }

  /** Whether the number of trainers has a chart of its own, below the speed: when it has changed, or may change. */
  private wantsTrainers(): boolean {
    return this.hasSpeed() && (this.job?.elastic === true || this.loudEvents().length > 0);
  }

  /** Whether that chart has data yet: an axis without a curve is left out. */
  private hasTrainers(): boolean {
    return this.wantsTrainers() && [...(this.detail ?? this.history).keys()].some((attempt) => this.changesOf(attempt).length > 0);
  }

  /** Where on the axis the number of an attempt's trainers changed, as far as it is known. */
  private changesOf(attempt: number): { x: number; trainers: number }[] {
    return trainersOverTime(this.events, attempt).flatMap(({ at, time, trainers }) => {
      const x = this.axis === "step" ? this.steps.get(time) : at;
      return x === undefined ? [] : [{ x, trainers }];
    });
  }

  /** Steps from one number to the next, the last one until the end of the attempt's curve. */
  private trainersOf(attempt: number): Plotly.Trace {
    const known = this.changesOf(attempt);
    const end = Math.max(...[...(this.history.get(attempt)?.values() ?? [])].map((series) => series.shown().x.at(-1) ?? -Infinity));
    const last = known.at(-1);
    if (last && end > last.x) known.push({ x: end, trainers: last.trainers });
    const colour = COLOURS[this.isDark() ? "dark" : "light"][2] as string;
    return {
      x: known.map(({ x }) => this.onAxis(x)),
      y: known.map(({ trainers }) => trainers),
      yaxis: "y3",
      name: gettext("trainers"),
      showlegend: false,
      type: "scatter",
      mode: "lines",
      line: { color: colour, width: 2, shape: "hv" },
    };
  }

  /** Whether the speed has a chart of its own, below the chosen curve. */
  private hasSpeed(): boolean {
    return this.key !== SPEED && orderedKeys(this.history).includes(SPEED);
  }

  private tracesOf(key: string, yaxis: "y" | "y2", data: Series, attempt: number, newest: boolean): Plotly.Trace[] {
    const x = data.x.map((at) => this.onAxis(at));
    const index = orderedKeys(this.history).indexOf(key);
    const colours = COLOURS[this.isDark() ? "dark" : "light"];
    const colour = colours[(newest ? index : index + attempt) % colours.length] as string;
    const name = this.history.size > 1 ? fill(gettext("{key}, attempt {n}"), { key, n: attempt }) : key;
    const faint = { x, yaxis, mode: "lines", type: "scatter", hoverinfo: "skip", showlegend: false, line: { width: 0, color: colour } };
    const traces: Plotly.Trace[] = [];
    if (newest && data.count.some((count) => count > 1)) {
      traces.push({ ...faint, y: data.min }, { ...faint, y: data.max, fill: "tonexty", fillcolor: `${colour}2a` });
    }
    if (this.smoothing > 0) traces.push({ ...faint, y: data.last, line: { width: 1, color: `${colour}55` } });
    const alone = data.x.length === 1;
    traces.push({
      x,
      yaxis,
      y: smooth(data.last, data.count, this.smoothing),
      name,
      type: "scatter",
      mode: alone ? "markers" : "lines",
      opacity: newest ? 1 : 0.45,
      line: { color: colour, width: newest ? 2 : 1.5, dash: newest ? "solid" : "dot" },
      marker: { color: colour },
    });
    return traces;
  }

  private isDark(): boolean {
    const theme = document.documentElement.dataset["theme"];
    return theme === "dark" || (theme !== "light" && this.dark.matches);
  }

  private layout(): Plotly.Layout {
    const style = getComputedStyle(this);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const line = colour("--line");
    const speed = this.hasSpeed();
    const trainers = this.hasTrainers();
    const [curve, rate] = DOMAINS[trainers ? "withTrainers" : speed ? "withSpeed" : "alone"];
    const marks = this.marks();
    const band = WORD_LINE * marks.filter((mark) => mark.labelled).length;
    this.classList.toggle("with-speed", speed);
    this.classList.toggle("with-trainers", trainers);
    const axis = { gridcolor: line, zeroline: false, linecolor: line, automargin: true, visible: this.key !== "" };
    return {
      // The reader's zoom outlasts live updates, and ends with another curve or axis.
      uirevision: `${this.axis}|${this.key}`,
      autosize: true,
      margin: { l: 52, r: 16, t: 12, b: 42 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: style.fontFamily, size: 12, color: colour("--quiet") },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: colour("--accent") },
      hovermode: "x",
      dragmode: "zoom",
      showlegend: this.history.size > 1,
      legend: { orientation: "h", y: 1.12, x: 0 },
      xaxis: { ...axis, title: { text: this.axisTitle() }, type: this.axis === "wall" ? "date" : "linear", anchor: trainers ? "y3" : speed ? "y2" : "y" },
      yaxis: { ...axis, type: this.logY ? "log" : "linear", exponentformat: "power", domain: [curve[0], curve[1] - band] },
      ...(speed ? { yaxis2: { ...axis, domain: rate, rangemode: "tozero", nticks: 4 } } : {}),
      ...(trainers ? { yaxis3: { ...axis, domain: [0, 0.13], rangemode: "tozero", nticks: 4, tickformat: "d" } } : {}),
      shapes: marks.map((mark) => ({
        type: "line",
        xref: "x",
        yref: "paper",
        x0: mark.x,
        x1: mark.x,
        y0: 0,
        y1: 1,
        line: { color: colour(mark.loud ? "--accent" : "--quiet"), width: mark.loud ? 1.5 : 1, dash: mark.loud ? "dash" : "dot" },
      })),
      annotations: this.key === "" ? [this.emptyNote()] : [...this.words(marks, colour), ...this.titles(speed, trainers, colour("--surface"))],
    };
  }

  /** The newest loud marks as text above the curve, the others as symbols with their text on hover. */
  private words(marks: Mark[], colour: (name: string) => string): Record<string, unknown>[] {
    let line = 0;
    return marks.map((mark) => {
      const place = { x: mark.x, xref: "x", yref: "paper", showarrow: false, hovertext: escaped(mark.text) };
      if (!mark.labelled) return { ...place, y: 1, text: "◆", font: { size: 10, color: colour(mark.loud ? "--accent" : "--quiet") } };
      const y = 1 - WORD_LINE * line++;
      const text = escaped(fitting(mark.text, this.plot.clientWidth / 2));
      return { ...place, y, yanchor: "top", xanchor: mark.early ? "left" : "right", text, font: { size: 11.5, color: colour("--text") }, bgcolor: colour("--surface") };
    });
  }

  /** The axes of the charts below the chosen curve. */
  private titles(speed: boolean, trainers: boolean, bgcolor: string): Record<string, unknown>[] {
    const title = { xref: "paper", yref: "paper", x: 0, xanchor: "left", showarrow: false, bgcolor };
    return [
      ...(speed ? [{ ...title, text: gettext("records per second"), y: trainers ? 0.45 : 0.29 }] : []),
      ...(trainers ? [{ ...title, text: gettext("trainers"), y: 0.19 }] : []),
    ];
  }

  private emptyNote(): Record<string, unknown> {
    const text = isTerminal(this.job?.state ?? "")
      ? gettext("This job reported no metrics.")
      : gettext("The chart starts with the first metric that a trainer reports.");
    return { text, xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, font: { size: 14 } };
  }

  /** Events of all trainers; and of single replicas on the time axes: they have no step. */
  private marks(): Mark[] {
    const quiet = this.axis === "step" ? [] : this.events.filter((event) => event.replica && !LOUD.has(event.kind)).slice(-50);
    const placed = [...quiet, ...this.loudEvents()].flatMap((event) => {
      const at = this.axis === "step" ? this.steps.get(event.time) : dateOf(event.time).getTime() / 1000;
      return at === undefined ? [] : [{ event, at }];
    });
    const [from, to] = this.zoom ?? this.extent();
    const labelled = new Set(placed.filter(({ event }) => LOUD.has(event.kind)).slice(-LINES_OF_WORDS));
    return placed.map((one) => ({
      x: this.onAxis(one.at),
      text: one.event.text,
      loud: LOUD.has(one.event.kind),
      labelled: labelled.has(one),
      early: one.at - from < to - one.at,
    }));
  }

  /** The range of the curves. */
  private extent(): [number, number] {
    const all = [...this.history.values()].flatMap((series) => [...series.values()].map((one) => one.shown().x));
    return [Math.min(...all.map((x) => x[0] ?? Infinity)), Math.max(...all.map((x) => x.at(-1) ?? -Infinity))];
  }

  private axisTitle(): string {
    if (this.axis === "step") return gettext("step");
    return this.axis === "elapsed" ? gettext("seconds since the start") : gettext("time");
  }

  // --- For those who do not see the curve ---------------------------------------------------------------------------

  private current(): Series {
    const newest = Math.max(...this.history.keys());
    return this.history.get(newest)?.get(this.key)?.shown() ?? emptySeries();
  }

  private showSummary(): void {
    const series = this.current();
    const at = lowest(series.min);
    const text =
      at < 0
        ? ""
        : fill(gettext("{key}: latest {last}, lowest {least}, {points} points"), {
            key: this.key,
            last: short(series.last.at(-1)),
            least: short(series.min[at]),
            points: series.count.reduce((sum, count) => sum + count, 0),
          });
    this.summary.textContent = text;
    this.plot.setAttribute("aria-label", text || gettext("Empty chart"));
  }

  /** How many metrics the chart leaves out, and where they are. */
  private showOmission(names: string[]): void {
    this.omission.hidden = names.length === 0;
    const text = gettext("{n} more metrics are not shown, such as {names}. The CSV file contains all metrics.");
    const some = names.slice(0, NAMES_LISTED).join(", ");
    this.omission.textContent = names.length ? fill(text, { n: names.length.toLocaleString(language()), names: some }) : "";
  }

  private showTable(): void {
    if (!(this.table.parentElement as HTMLDetailsElement | null)?.open) return;
    const { x, min, max, last } = this.current();
    const from = Math.max(0, x.length - TABLE_ROWS);
    const head = [this.axisTitle(), gettext("latest"), gettext("min"), gettext("max")];
    const rows = x.slice(from).map((value, i) => {
      const at = this.onAxis(value);
      const cells = [typeof at === "string" ? at : short(at), ...[last, min, max].map((of) => short(of[from + i]))];
      return h("tr", {}, ...cells.map((cell) => h("td", {}, cell)));
    });
    this.table.replaceChildren(
      h(
        "table",
        { class: "table numbers" },
        h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, ...rows.reverse()),
      ),
    );
  }
}

function orderedKeys(history: History): string[] {
  return inOrder([...history.values()].flatMap((series) => [...series.keys()]));
}

function firstX(history: History): number {
  const first = [...history.values()].flatMap((series) => [...series.values()].map((one) => one.shown().x[0] ?? Infinity));
  const least = Math.min(...first);
  return Number.isFinite(least) ? least : Date.now() / 1000;
}

function seriesOf(history: History, attempt: number, key: string): LiveSeries {
  const ofAttempt = history.get(attempt) ?? new Map<string, LiveSeries>();
  history.set(attempt, ofAttempt);
  const series = ofAttempt.get(key) ?? new LiveSeries();
  ofAttempt.set(key, series);
  return series;
}

function onlyNumbers(series: Series): void {
  for (const name of ["min", "max", "last"] as const) series[name] = series[name].map(finite);
}

/** A value that can be drawn; others leave a gap. */
function finite(value: number | string | null): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function lowest(values: (number | null)[]): number {
  let found = -1;
  values.forEach((value, i) => {
    if (value !== null && (found < 0 || value < (values[found] as number))) found = i;
  });
  return found;
}

/** The part of a text that fits in a line of so many pixels. */
function fitting(text: string, pixels: number): string {
  let left = pixels;
  const end = [...text].findIndex((letter) => (left -= letter > "\u2e7f" ? CJK_PX : LATIN_PX) < 0);
  return end < 0 ? text : `${[...text].slice(0, end).join("")}…`;
}

/** Escapes a text for an annotation, which takes some tags for markup. */
function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
}

/** Local wall-clock time in Plotly's format: "2026-01-31 14:05:09.120". */
function localTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().replace("T", " ").slice(0, 23);
}

customElements.define("metric-chart", MetricChart);
