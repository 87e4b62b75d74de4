// SPDX-License-Identifier: Apache-2.0
// Charts as inline SVG: lines by step with axes, a legend that shows the values under the pointer,
// and smoothing. All text is set as text, never as HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// Creates an element with attributes and children (nodes or text).
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return fill(element, attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const colour = (index) => `var(--c${index % 6})`;

// 1234567 as "1.23M", 0.00012 as "1.2e-4".
function short(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0*e/, "e");
  for (const [scale, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (size >= scale * 0.99995) return trim((value / scale).toPrecision(digits)) + letter;
  return trim(value.toPrecision(digits));
}

const trim = (text) => (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text);

function bytes(value, digits = 3) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  for (; value >= 1024 && i + 1 < units.length; ++i) value /= 1024;
  return `${trim(value.toPrecision(value < 1000 ? digits : Math.max(digits, 4)))} ${units[i]}`;
}

function seconds(value, digits = 3) {
  if (value === 0) return "0 s";
  const [scale, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${trim((value * scale).toPrecision(digits))} ${unit}`;
}

const percent = (value, digits = 3) => `${trim((100 * value).toPrecision(value < 0.0995 ? digits - 1 : digits))} %`;

// Round numbers that divide [low, high] into about `count` parts.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) found.push(i * step);
  return found;
}

// The same in bytes: round numbers of the largest unit.
function byteTicks(low, high, count) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(high, 1)) / 10));
  return ticks(low / unit, high / unit, count).map((tick) => tick * unit);
}

// The labels of ticks: as many digits as it takes to tell them apart.
function labelsOf(values, format) {
  for (let digits = 3; ; ++digits) {
    const labels = values.map((value) => format(value, digits));
    if (digits === 7 || new Set(labels).size === labels.length) return labels;
  }
}

// For a logarithmic axis: powers of ten, with 2 and 5 times them where there are few.
function logTicks(low, high) {
  const found = [];
  const decades = Math.log10(high / low);
  const factors = decades > 4 ? [1] : [1, 2, 5];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
    for (const factor of factors) {
      const tick = factor * 10 ** e;
      if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
    }
  return found.length > 1 ? found : ticks(low, high, 4).filter((tick) => tick > 0);
}

// The mean of the values around each, with weights that fall exponentially on both sides, so that a
// steep curve is not shifted. Gaps stay gaps. It spans at most a tenth of the values, so that a
// short run is not smoothed away.
function smoothed(values, most) {
  const weight = Math.min(most, 1 - 20 / values.length);
  if (weight <= 0) return values;
  // At each value the sums of it and those before it.
  const sums = (list) => {
    let sum = 0, total = 0;
    return list.map((value) => {
      sum = weight * sum + (value ?? 0);
      total = weight * total + (value === null ? 0 : 1);
      return [sum, total];
    });
  };
  const before = sums(values), after = sums([...values].reverse()).reverse();
  return values.map((value, i) => value === null ? null
    : (before[i][0] + after[i][0] - value) / (before[i][1] + after[i][1] - 1));
}

// The range of the values. A few far above all others do not stretch it.
function rangeOf(series, log, fromZero) {
  const values = [];
  for (const each of series)
    for (const list of [each.shown, each.mean, each.low, each.high])
      for (const value of list || []) if (value !== null && (!log || value > 0)) values.push(value);
  if (values.length === 0) return null;
  values.sort((a, b) => a - b);
  let low = values[0], high = values[values.length - 1], hidden = null;
  const usual = values[Math.floor(0.98 * (values.length - 1))];
  if (!log && values.length >= 40 && high - low > 4 * (usual - low) && usual - low > 0.02 * (high - low)) {
    hidden = high;
    high = low + 1.6 * (usual - low);
  }
  if (fromZero && low > 0) low = 0;
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    [low, high] = log ? [low / 1.2, high * 1.2] : [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  } else if (!log) {
    const room = 0.04 * (high - low);
    low = low >= 0 && low < 4 * room ? Math.min(low, 0) : low - room;
    high += room;
  }
  return { low, high, hidden };
}

function median(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

// A path through the points; null breaks the line.
function pathOf(x, y, steps, values) {
  let path = "", pen = "M";
  for (let i = 0; i < steps.length; ++i) {
    if (values[i] === null || !Number.isFinite(y(values[i]))) { pen = "M"; continue; }
    path += `${pen}${x(steps[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

function bandOf(x, y, series) {
  const ahead = [], back = [];
  for (let i = 0; i < series.steps.length; ++i) {
    if (series.low[i] === null) continue;
    const at = x(series.steps[i]).toFixed(1);
    ahead.push(`${at} ${y(series.high[i]).toFixed(1)}`);
    back.unshift(`${at} ${y(series.low[i]).toFixed(1)}`);
  }
  return ahead.length > 1 ? `M${ahead.concat(back).join("L")}Z` : "";
}

// The index of the step nearest to `step` in ascending steps.
function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle; else high = middle;
  }
  return step - steps[low] <= steps[high] - step ? low : high;
}

// A chart of series {name, colour, steps, mean, low, high, dots, smooth}. Options: title, unit,
// format (of values), wide, height, fromZero, marks ([step, text]), log and smoothing (functions),
// axis (what is counted from left to right: steps, unless given).
function chart(series, options) {
  const format = options.format || short, axis = options.axis || "step";
  const figure = make("figure", { class: `chart${options.wide ? " wide" : ""}` });
  const title = make("h3", {}, options.title, options.unit ? make("span", { class: "unit" }, `, ${options.unit}`) : "");
  const legend = make("div", { class: "legend" });
  const drawing = svg("svg", { role: "img", "aria-label": `${options.title} by ${axis}` });
  figure.append(make("div", { class: "heading" }, title), legend, drawing);
  const values = series.map((each) => {
    const value = make("b");
    const line = make("i", { class: each.dots ? "dots" : "" });
    line.style[each.dots ? "background" : "borderColor"] = each.colour;
    legend.append(make("span", {}, line, each.name ? `${each.name} ` : "", value));
    return value;
  });
  const at = make("span");
  legend.append(at);

  function readout(step) {
    series.forEach((each, i) => {
      const index = step === null ? each.steps.length - 1 : nearest(each.steps, step);
      const value = each.mean[index];
      values[i].textContent = value === null ? "not finite" : format(value);
    });
    at.textContent = step === null ? "" : `${axis} ${Math.round(step).toLocaleString("en")}`;
  }

  function draw() {
    drawing.replaceChildren();
    figure.drawnWidth = figure.clientWidth;
    const width = Math.max(200, figure.clientWidth), height = options.height || (options.wide ? 300 : 190);
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.setAttribute("height", height);
    const log = options.log ? options.log() : false;
    const weight = options.smoothing ? options.smoothing() : 0;
    for (const each of series) each.shown = each.smooth ? smoothed(each.mean, weight) : each.mean;
    const range = rangeOf(series, log, options.fromZero);
    if (range === null) {
      drawing.append(svg("text", { x: 0, y: 20 }, "no value is finite"));
      return;
    }
    const yTicks = log ? logTicks(range.low, range.high) : (format === bytes ? byteTicks : ticks)(range.low, range.high, Math.max(3, height / 50));
    const labels = labelsOf(yTicks, format);
    const left = Math.max(40, 10 + 6.6 * Math.max(...labels.map((label) => label.length)));
    const top = 8, bottom = height - 22, right = width - 10;
    const first = Math.min(...series.map((each) => each.steps[0]));
    const last = Math.max(first + 1, ...series.map((each) => each.steps[each.steps.length - 1]));
    const begin = first <= 0.3 * last ? 0 : first;
    const x = (step) => left + ((right - left) * (step - begin)) / (last - begin);
    const place = log ? (value) => Math.log(value / range.low) / Math.log(range.high / range.low)
                      : (value) => (value - range.low) / (range.high - range.low);
    const y = (value) => Math.max(top - 4, bottom - (bottom - top) * place(value));

    yTicks.forEach((tick, i) => {
      const level = y(tick);
      drawing.append(svg("path", { class: "grid", d: `M${left} ${level}H${right}` }),
                     svg("text", { x: left - 6, y: level + 4, "text-anchor": "end" }, labels[i]));
    });
    for (const tick of ticks(begin, last, Math.min(8, (right - left) / 90))) {
      if (tick % 1 !== 0) continue;
      const anchor = x(tick) > right - 14 ? "end" : "middle";
      drawing.append(svg("path", { class: "axis", d: `M${x(tick)} ${bottom}v4` }),
                     svg("text", { x: x(tick) + (anchor === "end" ? 6 : 0), y: bottom + 17, "text-anchor": anchor }, short(tick, 4)));
    }
    drawing.append(svg("path", { class: "axis", d: `M${left} ${bottom}H${right}` }),
                   svg("text", { x: 0, y: bottom + 17 }, axis));
    for (const [step, text] of options.marks || [])
      if (step >= begin && step <= last)
        drawing.append(svg("path", { class: "mark", d: `M${x(step)} ${top}V${bottom}` }, svg("title", {}, text)));
    if (range.hidden !== null)
      drawing.append(svg("text", { x: right, y: top + 4, "text-anchor": "end" }, `highest value ${format(range.hidden)}`));
    for (const each of series) drawSeries(each, x, y, weight);
    drawing.append(cursor);
    drawing.scale = { x, left, right, begin, last, top, bottom };
  }

  function drawSeries(each, x, y, weight) {
    const isSmoothed = each.smooth && weight > 0;
    if (each.low) drawing.append(svg("path", { class: "band", fill: each.colour, d: bandOf(x, y, each) }));
    else if (isSmoothed) drawing.append(svg("path", { class: "raw", stroke: each.colour, d: pathOf(x, y, each.steps, each.mean) }));
    drawing.append(svg("path", { class: "line", stroke: each.colour, "stroke-dasharray": each.dash, d: pathOf(x, y, each.steps, each.shown) }));
    const isSparse = each.steps.length === 1 || (each.dots && each.steps.length <= 60);
    if (!isSparse) return;
    each.steps.forEach((step, i) => {
      if (each.mean[i] !== null && Number.isFinite(y(each.mean[i])))
        drawing.append(svg("circle", { class: "dot", fill: each.colour, cx: x(step).toFixed(1), cy: y(each.mean[i]).toFixed(1), r: 3.5 }));
    });
  }

  const cursor = svg("path", { class: "cursor", d: "" });
  drawing.addEventListener("pointermove", (event) => {
    const scale = drawing.scale;
    if (!scale) return;
    const at = Math.min(scale.right, Math.max(scale.left, event.clientX - drawing.getBoundingClientRect().left));
    const step = scale.begin + ((at - scale.left) / (scale.right - scale.left)) * (scale.last - scale.begin);
    const own = series[0].steps;
    const exact = own[nearest(own, step)];
    cursor.setAttribute("d", `M${scale.x(exact).toFixed(1)} ${scale.top}V${scale.bottom}`);
    readout(exact);
  });
  drawing.addEventListener("pointerleave", () => {
    cursor.setAttribute("d", "");
    readout(null);
  });
  readout(null);
  figure.draw = draw;
  return figure;
}

// Draws the charts below `root` now and when their width changes.
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.clientWidth !== target.drawnWidth) target.draw();
});

function drawCharts(root) {
  widths.disconnect();
  for (const figure of root.querySelectorAll(".chart")) {
    figure.draw();
    widths.observe(figure);
  }
}
