// A small plot over days, with a line per group. Above: the usage view, which repeats the figures in an accessible
// table. Below: uPlot, whose canvas takes its colours from the page's CSS variables.

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export const SERIES_COLOURS = ["--series-0", "--series-1", "--series-2", "--series-3", "--series-4", "--series-5"];

const HEIGHT_PX = 144;

interface Props {
  axis: string[];
  lines: { name: string; values: number[] }[];
  show: (value: number) => string;
  label: string;
}

export function Plot({ axis, lines, show, label }: Props) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current!;
    const draw = () => {
      // A canvas needs the resolved colour, so read it from an element that uses the variable.
      const colour = (name: string) => {
        element.style.color = `var(${name})`;
        const found = getComputedStyle(element).color;
        element.style.color = "";
        return found;
      };
      const common = { stroke: colour("--quiet"), font: "11px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      return new uPlot(
        {
          width: element.clientWidth,
          height: HEIGHT_PX,
          padding: [8, 8, 0, 0],
          cursor: { y: false, points: { size: 6 } },
          legend: { show: false },
          scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(1e-9, max * 1.1) || 1] } },
          axes: [{ ...common, size: 28, gap: 9, grid: { show: false }, values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" })) }, { ...common, size: 52, values: (_, splits) => splits.map((value) => show(value)) }],
          series: [{}, ...lines.map((line, index) => ({ label: line.name, stroke: colour(SERIES_COLOURS[index] ?? "--accent"), width: 1.5, points: { show: axis.length < 10 } }))],
        },
        [axis.map((day) => Date.parse(day) / 1000), ...lines.map((line) => line.values)],
        element,
      );
    };
    let plot = draw();
    const again = () => {
      plot.destroy();
      plot = draw();
    };
    const sizes = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    sizes.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", again);
    return () => {
      dark.removeEventListener("change", again);
      sizes.disconnect();
      plot.destroy();
    };
  }, [axis, lines, show]);
  return <div ref={place} role="img" aria-label={label} className="min-w-0 overflow-hidden" />;
}
