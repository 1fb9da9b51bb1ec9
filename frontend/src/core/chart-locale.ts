/** Charts in the reader's language: `locale` is for Plotly's configuration. */
import Plotly from "plotly.js-basic-dist-min";
import { language } from "./i18n";

const DAYS = ["星期日", "星期一", "星期二", "星期三", "星期四", "星期五", "星期六"];
const MONTHS = Array.from({ length: 12 }, (_, i) => `${i + 1}月`);

Plotly.register({
  moduleType: "locale",
  name: "zh-CN",
  dictionary: {
    Zoom: "缩放",
    Pan: "平移",
    "Zoom in": "放大",
    "Zoom out": "缩小",
    "Reset axes": "复位",
    "Double-click to zoom back out": "双击还原",
  },
  format: { days: DAYS, shortDays: DAYS, months: MONTHS, shortMonths: MONTHS, date: "%Y-%m-%d", year: "%Y年", month: "%Y年%b", dayMonth: "%b%-d日", dayMonthYear: "%Y年%b%-d日" },
});

export function locale(): string {
  return language().startsWith("zh") ? "zh-CN" : "en";
}
