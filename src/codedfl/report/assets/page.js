// The page: theme, learning curves with their switches, spectra, and values under the pointer.

const page = { data: JSON.parse(document.getElementById("data").textContent), hidden: new Set(), logTime: null, whole: false };

function remembered(key, value) {
  try {
    if (value === undefined) return localStorage.getItem("codedfl-" + key);
    localStorage.setItem("codedfl-" + key, value);
  } catch { /* storage may be forbidden for a file */ }
  return null;
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "light mode" : "dark mode";
}

function currentTheme() {
  return remembered("theme") || (systemDark.matches ? "dark" : "light");
}

function writeScore(value, onAxis) {
  if (!page.data.percent) return onAxis ? short(value) : value.toFixed(4);
  return (onAxis ? Number((100 * value).toFixed(1)) : (100 * value).toFixed(2)) + "%";
}

// The first tenth of training decides nothing but would take most of the axis; R² may even begin far below zero.
function scoreRange() {
  const known = (values) => values.filter((value) => value !== null);
  const curves = visibleCurves().map((curve) => curve.score);
  const all = known([...curves.flat(), page.data.reference]);
  if (!all.length) return [0, 1];
  const late = known(curves.flatMap((score) => score.slice(Math.floor(score.length / 10))));
  const high = Math.max(...all);
  const low = page.whole || !late.length ? Math.min(...all) : Math.max(Math.min(...late), page.data.percent ? 0 : high - 2);
  const margin = Math.max((high - low) * 0.08, 0.002);
  return [low - margin, page.data.percent ? Math.min(high + margin, 1.002) : high + margin];
}

// Most of what happens, happens early: a logarithmic axis shows it, if times differ enough.
function suggestsLogTime() {
  return page.data.curves.some((curve) => curve.training.length > 2 && curve.training[curve.training.length - 1] >= 20 * curve.training[1]);
}

function curveName(curve) {
  const names = [page.data.schemes[curve.scheme], page.data.runs[curve.run]];
  return page.data.runs.length > 1 ? (page.data.schemes.length > 1 ? names.join(", ") : names[1]) : names[0];
}

function visibleCurves() {
  return page.data.curves.filter((c) => !page.hidden.has("scheme-" + c.scheme) && !page.hidden.has("run-" + c.run));
}

function curveLines(clock) {
  const curves = visibleCurves();
  const end = Math.max(0, ...page.data.curves.map((curve) => curve[clock][curve[clock].length - 1]));
  const positive = page.data.curves.flatMap((curve) => curve[clock].filter((x) => x > 0));
  const first = positive.length ? Math.min(...positive) : 1;
  const lines = curves.map((curve) => {
    let x = curve[clock], y = curve.score;
    // A scheme that solves once has its model from then on.
    if (x.length === 1) [x, y] = [[page.logTime ? Math.max(x[0], first) : x[0], end], [y[0], y[0]]];
    return { name: curveName(curve), x, y, stroke: colour("c" + curve.colour), dash: DASHES[curve.dash % DASHES.length] };
  });
  if (page.data.reference !== null && end > 0) {
    const x = [page.logTime ? first : 0, end];
    lines.push({ name: "centralised", x, y: [page.data.reference, page.data.reference], stroke: colour("muted"), dash: [4, 4], width: 1.5, plain: true });
  }
  return lines;
}

function drawCurves() {
  for (const figure of document.querySelectorAll(".chart[data-clock]")) {
    lineChart(figure.querySelector(".plot"), curveLines(figure.dataset.clock), {
      logX: page.logTime, rangeY: scoreRange(), labelX: "seconds", value: writeScore, at: (x) => short(x) + " s",
    });
  }
}

function drawSpectra() {
  for (const figure of document.querySelectorAll(".chart.spectrum")) {
    const found = page.data.spectra[figure.dataset.run];
    const lines = found.lines.map((line, i) => ({ name: line.name, x: line.rank, y: line.value, stroke: colour(i ? "c" + (i - 1) : "text") }));
    const end = found.lines[0].rank[found.lines[0].rank.length - 1];
    found.lines.forEach((line, i) => {
      if (line.noise > 0) lines.push({ name: "noise of " + line.name, x: [1, end], y: [line.noise, line.noise], stroke: colour("c" + (i - 1)), dash: [4, 4], width: 1.5, plain: true });
    });
    lineChart(figure.querySelector(".plot"), lines, {
      logX: true, logY: true, labelX: "rank of the eigenvalue", height: 320, value: short, at: (x) => "rank " + Math.max(1, Math.round(x)),
    });
  }
}

function draw() {
  drawCurves();
  drawSpectra();
}

function swatchOf(place) {
  const swatch = document.createElement("span");
  swatch.className = "swatch fill" + (place % 10);
  return swatch;
}

function dashOf(place) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const look = { d: "M0 4h26", stroke: "currentColor", "stroke-width": "2", "stroke-dasharray": DASHES[place % DASHES.length].join(" ") };
  for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
  for (const [name, value] of Object.entries({ width: "26", height: "8", "aria-hidden": "true" })) picture.setAttribute(name, value);
  picture.append(line);
  return picture;
}

function makeSwitches(kind, names, coloured) {
  const group = document.getElementById(kind + "-switches");
  if (!group || names.length < 2) return;
  group.replaceChildren(...names.map((name, i) => {
    const button = document.createElement("button");
    const key = kind + "-" + i;
    button.type = "button";
    button.id = "switch-" + key;
    button.setAttribute("aria-pressed", String(!page.hidden.has(key)));
    const label = document.createElement("span");
    label.textContent = name;
    button.append(coloured ? swatchOf(i) : dashOf(i), label);
    button.onclick = () => {
      if (!page.hidden.delete(key)) page.hidden.add(key);
      button.setAttribute("aria-pressed", String(!page.hidden.has(key)));
      drawCurves();
    };
    return button;
  }));
}

function setUp() {
  makeSwitches("scheme", page.data.schemes, !page.data.colourByRun);
  makeSwitches("run", page.data.runs, page.data.colourByRun);
  const log = document.getElementById("log-time");
  if (log) {
    page.logTime ??= page.data.curves.length ? suggestsLogTime() : null;
    log.checked = page.logTime;
    log.onchange = () => { page.logTime = log.checked; drawCurves(); };
    const whole = document.getElementById("whole-range");
    whole.checked = page.whole;
    whole.onchange = () => { page.whole = whole.checked; drawCurves(); };
  }
  // A chart in a folded part has no width until it is unfolded.
  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", () => fold.open && fold.querySelector(".plot") && draw());
  draw();
}

function showUnderPointer(event) {
  const strip = event.target.closest && event.target.closest(".heat svg");
  let tip = document.getElementById("float");
  if (!strip) {
    if (tip) tip.hidden = true;
    return;
  }
  if (!tip) {
    tip = document.createElement("div");
    tip.id = "float";
    tip.className = "tip";
    document.body.append(tip);
  }
  const box = strip.getBoundingClientRect(), seen = strip.dataset.seen;
  const cell = Math.max(0, Math.min(seen.length - 1, Math.floor(((event.clientX - box.left) / box.width) * seen.length)));
  const what = { 1: "arrived", 0: "did not arrive", "-": "not asked" }[seen[cell]];
  tip.textContent = strip.previousElementSibling.textContent + ", round " + (cell * Number(strip.dataset.every) + 1) + ": " + what;
  tip.hidden = false;
  tip.style.left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = event.clientY + 16 + "px";
}

document.addEventListener("pointermove", showUnderPointer);
document.getElementById("theme").onclick = () => {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  remembered("theme", theme);
  applyTheme(theme);
  draw();
};
systemDark.addEventListener("change", () => { applyTheme(currentTheme()); draw(); });
// Paper is white, and nobody can unfold anything on it.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const fold of unfolded) fold.open = true;
  applyTheme("light");
  draw();
});
addEventListener("afterprint", () => {
  for (const fold of unfolded) fold.open = false;
  applyTheme(currentTheme());
  draw();
});
let resized;
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(resized);
  resized = setTimeout(draw, 150);
});
applyTheme(currentTheme());
setUp();
