"use strict";
// Line charts on uPlot, with a list of values next to the cursor.

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 4]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function short(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1);
  return size >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// The value of a line at or before a place: what a scheme had reached by then.
function valueAt(line, x) {
  let found = null;
  for (let i = 0; i < line.x.length && line.x[i] <= x; i++) if (line.y[i] !== null) found = line.y[i];
  return found;
}

// A swatch and two texts in one row; names come from users, so nothing here is parsed as HTML.
function tipRow(stroke, name, value) {
  const row = document.createElement("div");
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.style.background = stroke;
  const label = document.createElement("span");
  label.textContent = name;
  const number = document.createElement("span");
  number.textContent = value;
  row.append(swatch, label, number);
  return row;
}

function showTip(tip, chart, lines, options) {
  const left = chart.cursor.left;
  if (left === null || left < 0) {
    tip.hidden = true;
    return;
  }
  const x = chart.posToVal(left, "x");
  const heading = document.createElement("b");
  heading.textContent = options.at(x);
  const rows = lines
    .map((line) => ({ line, value: valueAt(line, x) }))
    .filter((each) => each.value !== null)
    .sort((a, b) => b.value - a.value)
    .slice(0, 14)
    .map((each) => tipRow(each.line.stroke, each.line.name, options.value(each.value)));
  tip.replaceChildren(heading, ...rows);
  tip.hidden = false;
  const start = chart.bbox.left / devicePixelRatio + left;
  const room = chart.root.clientWidth;
  const beside = start + 16 + tip.offsetWidth > room ? start - 16 - tip.offsetWidth : start + 16;
  tip.style.left = Math.max(0, Math.min(beside, room - tip.offsetWidth)) + "px";
  tip.style.top = "8px";
}

// uPlot asks for the range of the whole data and for that of a zoom in the same way.
function zoomed(chart) {
  return chart.select && chart.select.width > 0;
}

function moveByKeys(chart, event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const width = chart.bbox.width / devicePixelRatio;
  const before = chart.cursor.left >= 0 ? chart.cursor.left : step > 0 ? 0 : width;
  chart.setCursor({ left: Math.max(0, Math.min(width, before + (step * width) / 50)), top: 20 });
}

// Draw lines { name, x, y, stroke, dash } into an element; options: log axes, labels, and how to write values.
function lineChart(place, lines, options) {
  if (place.chart) place.chart.destroy();
  place.replaceChildren();
  const width = place.clientWidth;
  if (!width) return;
  const kept = lines.map((line) => ({
    ...line,
    points: line.x.map((x, i) => [x, line.y[i]]).filter(([x, y]) => (!options.logX || x > 0) && (!options.logY || y > 0)),
  }));
  const tables = kept.map((line) => [line.points.map((p) => p[0]), line.points.map((p) => p[1])]);
  const data = tables.length ? uPlot.join(tables) : [[]];
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  const chart = new uPlot({
    width,
    height: options.height || Math.max(280, Math.min(380, Math.round(width * 0.62))),
    legend: { show: false },
    cursor: { drag: { x: true, y: true, uni: 20 }, points: { show: false }, y: false },
    scales: {
      x: { time: false, distr: options.logX ? 3 : 1, range: (u, low, high) => (low < high ? [low, high] : [low * 0.9, low * 1.1 + 1]) },
      y: { distr: options.logY ? 3 : 1, ...(options.rangeY ? { range: (u, low, high) => (zoomed(u) ? [low, high] : options.rangeY) } : {}) },
    },
    axes: [
      { ...axis, label: options.labelX, labelSize: 20, values: (u, splits) => splits.map((v) => (v === null ? "" : short(v))) },
      { ...axis, size: 56, values: (u, splits) => splits.map((v) => (v === null ? "" : options.value(v, true))) },
    ],
    series: [{}, ...kept.map((line) => ({
      label: line.name, stroke: line.stroke, width: line.width || 2, dash: line.dash || [], spanGaps: true,
      points: { show: line.points.length < 3 && !line.plain, size: 7, fill: line.stroke },
    }))],
    hooks: { setCursor: [(u) => showTip(tip, u, lines, options)] },
  }, data, place);
  place.append(tip);
  place.chart = chart;
  place.onkeydown = (event) => moveByKeys(chart, event);
}
