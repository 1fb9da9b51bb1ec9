/** The part of Plotly's basic bundle that this project uses. */
declare module "plotly.js-basic-dist-min" {
  namespace Plotly {
    type Trace = Record<string, unknown>;
    type Layout = Record<string, unknown>;
    interface PlotElement extends HTMLElement {
      on(event: "plotly_relayout", listener: (change: Record<string, unknown>) => void): void;
    }
  }
  const Plotly: {
    react(root: HTMLElement, data: Plotly.Trace[], layout: Plotly.Layout, config: object): Promise<HTMLElement>;
    purge(root: HTMLElement): void;
    downloadImage(root: HTMLElement, options: object): Promise<string>;
    register(module: object): void;
  };
  export default Plotly;
}
