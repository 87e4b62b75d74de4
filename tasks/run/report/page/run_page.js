// SPDX-License-Identifier: Apache-2.0
// The page of one run: its key figures, its charts, and the other sections. While the run is
// watched, the page is drawn again when its data changes.
"use strict";

const chosen = { smoothing: 0.8, log: false };

// Names of metrics that have a chart of their own, or none.
const kOwnCharts = new Set(["loss", "log_pplx", "learning_rate", "grad_norm", "tokens_per_sec", "mfu", "step_time",
  "input_wait", "process_memory", "tokens", "skipped", "expert_load_min", "expert_load_mean", "expert_load_max"]);

function seriesOf(run, metric, name, index, more = {}) {
  const data = run.series[metric];
  if (!data) return null;
  return { name, colour: colour(index), steps: data.s, mean: data.m, low: data.l, high: data.h, ...more };
}

const isEval = (name) => name.startsWith("eval/");

// "eval/validation/books/log_pplx" as ["validation/books", "log_pplx"].
function evalParts(name) {
  const parts = name.slice(5);
  const slash = parts.lastIndexOf("/");
  return [parts.slice(0, slash), parts.slice(slash + 1)];
}

const evalNames = (run, metric) =>
  Object.keys(run.series).filter((name) => isEval(name) && evalParts(name)[1] === metric);

// The metric of training and of evaluation that can be compared.
const heldOut = (run) => (run.series.log_pplx && evalNames(run, "log_pplx").length ? "log_pplx" : "loss");

// Whether the loss has terms besides the log-perplexity, such as a z-loss or label smoothing.
function hasMoreTerms(run) {
  const { loss, log_pplx: plain } = run.series;
  return Boolean(loss && plain) && loss.m.some((value, i) => Math.abs(value - plain.m[i]) > 1e-4 * Math.abs(value));
}

const metricTitle = (run, metric) => (metric === "log_pplx" && hasMoreTerms(run) ? "log-perplexity" : "loss");
const capitalised = (text) => text[0].toUpperCase() + text.slice(1);

function marksOf(run) {
  return run.events.filter((event) => event.event === "restore")
    .map((event) => [event.step, `resumed from step ${event.step}`]);
}

function runCharts(run) {
  const marks = marksOf(run);
  const one = (metric, title, unit, index, more = {}, smooth = true) => {
    const series = seriesOf(run, metric, "", index, { smooth });
    return series && chart([series], { title, unit, marks, smoothing: () => chosen.smoothing, ...more });
  };
  // One metric of training and of evaluation on one axis.
  const losses = (metric) => {
    const found = [seriesOf(run, metric, "training", 0, { smooth: true }),
      ...evalNames(run, metric).slice(0, 5).map((name, i) => seriesOf(run, name, evalParts(name)[0], i + 1, { dots: true }))].filter(Boolean);
    return found.length && chart(found, { title: capitalised(metricTitle(run, metric)), unit: "nats per token", wide: true, marks,
      format: (value, digits = 4) => short(value, digits), log: () => chosen.log, smoothing: () => chosen.smoothing });
  };
  return [
    losses(heldOut(run)),
    heldOut(run) === "log_pplx" && hasMoreTerms(run) && losses("loss"),
    one("learning_rate", "Learning rate", "", 2, { fromZero: true }, false),
    one("grad_norm", "Gradient norm", "before clipping", 3, { log: () => chosen.log }),
    one("tokens_per_sec", "Throughput", "tokens per second", 0, { fromZero: true }),
    one("mfu", "Model FLOP/s utilization", "", 2, { fromZero: true, format: percent }),
    one("step_time", "Time of a step", "", 4, { fromZero: true, format: seconds }),
    one("input_wait", "Waiting for input", "in a step", 1, { fromZero: true, format: seconds }),
  ].filter(Boolean);
}

function expertCharts(run) {
  const names = [["expert_load_max", "most loaded", 1], ["expert_load_mean", "mean", 2], ["expert_load_min", "least loaded", 0]];
  const series = names.map(([metric, name, index]) => seriesOf(run, metric, name, index, { smooth: true })).filter(Boolean);
  if (series.length === 0) return null;
  const content = [make("p", {}, "The load of an expert is its number of tokens divided by an equal share, so 1 is balanced."),
    make("div", { class: "charts" }, chart(series, { title: "Expert load", unit: "1 is an equal share", wide: true, height: 220,
      fromZero: true, marks: marksOf(run), smoothing: () => chosen.smoothing }))];
  const layers = Object.keys(run.layers).filter((name) => name.endsWith(".expert_load_max") && !isEval(name));
  if (layers.length > 0) {
    const most = Math.max(...layers.map((name) => run.layers[name] || 0), 1);
    content.push(make("details", { id: "layers" }, make("summary", {}, `Load by layer at step ${run.step.toLocaleString("en")}`),
      table(["layer", number("least"), number("most"), ""], layers.map((name) => {
        const layer = name.slice(0, -".expert_load_max".length);
        return [make("code", {}, layer), number(short(run.layers[`${layer}.expert_load_min`])), number(short(run.layers[name])),
          shareBar((run.layers[name] || 0) / most)];
      }))));
  }
  return section("Experts", ...content);
}

function otherCharts(run) {
  const byMetric = new Map();
  const ordered = Object.keys(run.series).sort((a, b) => isEval(a) - isEval(b));  // Training first.
  for (const name of ordered) {
    const metric = isEval(name) ? evalParts(name)[1] : name;
    if (kOwnCharts.has(metric) || (isEval(name) && ["weight", "perplexity"].includes(metric))) continue;
    if (!byMetric.has(metric)) byMetric.set(metric, []);
    byMetric.get(metric).push(name);
  }
  const charts = [...byMetric].slice(0, 24).map(([metric, names]) => {
    const series = names.slice(0, 6).map((name, i) => seriesOf(run, name, isEval(name) ? evalParts(name)[0] : "training", i,
      isEval(name) ? { dots: true } : { smooth: true }));
    return chart(series, { title: metric.replaceAll("_", " "), smoothing: () => chosen.smoothing });
  });
  return charts.length ? section("Other metrics", make("div", { class: "charts" }, ...charts)) : null;
}

function figuresOf(run) {
  const list = make("dl", { class: "figures" });
  const add = (name, value, detail) => list.append(make("div", {}, make("dt", {}, name),
    make("dd", {}, value, detail ? make("small", {}, ` ${detail}`) : "")));
  const last = run.last;
  const has = (name) => last[name] !== undefined && last[name] !== null;
  add("Step", run.step.toLocaleString("en"), run.num_steps ? `of ${run.num_steps.toLocaleString("en")}` : "");
  const metric = heldOut(run);
  if (metric in last) add(`Training ${metricTitle(run, metric)}`, last[metric] === null ? "not finite" : short(last[metric], 4));
  for (const name of evalNames(run, metric).slice(0, 2)) {
    const values = run.series[name].m.filter((value) => value !== null);
    const best = Math.min(...values);
    if (values.length) add(`Held out, ${evalParts(name)[0]}`, short(values[values.length - 1], 4),
      best < values[values.length - 1] ? `best ${short(best, 4)}` : "");
  }
  if (has("tokens")) add("Tokens seen", short(last.tokens));
  // The usual speed: that of one step depends on what else the machine does.
  const usual = (name) => median(run.series[name].m.slice(-Math.ceil(run.series[name].m.length / 2)));
  if (has("tokens_per_sec")) add("Tokens per second", short(usual("tokens_per_sec")));
  if (has("mfu")) add("MFU", percent(usual("mfu")));
  if (run.plan && run.plan.parameters) add("Parameters", short(run.plan.parameters), run.plan.devices > 1 ? `on ${run.plan.devices} devices` : "");
  if (run.plan && run.plan.peak_bytes) add("Memory of a device", bytes(run.plan.peak_bytes));
  if (last.skipped > 0) add("Skipped steps", short(last.skipped));
  return list;
}

function headerOf(run) {
  const words = { done: "finished", running: "running", failed: "failed", stopped: "stopped, can be resumed",
                  unknown: "no end in its log: interrupted, or still running", empty: "no step yet" };
  const status = make("p", { class: "subtitle soft" }, make("span", { class: `state ${run.state}` }, words[run.state]),
    run.written ? `, last written ${run.written}` : "");
  const parts = [make("h1", {}, run.experiment || run.directory), make("p", { class: "subtitle mono soft" }, run.directory), status];
  if (run.reason) parts.push(make("p", { class: "bad" }, run.reason));
  parts.push(figuresOf(run));
  if (run.notes.length) parts.push(make("ul", { class: "notes" }, ...run.notes.map((note) => make("li", {}, note))));
  return make("header", {}, ...parts);
}

function eventsSection(run) {
  const words = { start: "started", restore: "resumed from this step", save: "saved a checkpoint", skip: "skipped this step",
                  preempt: "stopped by a signal, and saved", failed: "failed", done: "done",
                  console_lost: "lost its console", broken_documents: "skipped broken documents" };
  const rows = run.events.map((event) => [number(event.step.toLocaleString("en")), `${words[event.event] || event.event}` +
    `${event.reason ? `: ${event.reason}` : ""}${event.seconds ? ` in ${seconds(event.seconds)}` : ""}`]);
  const content = rows.length ? [make("details", { id: "events" }, make("summary", {}, `${rows.length} events`), table([number("step"), "event"], rows))] : [];
  if (run.failures) content.push(make("details", { id: "failures", open: "" }, make("summary", {}, "failures.log"), make("pre", {}, run.failures)));
  return content.length ? section("Events", ...content) : null;
}

function controls(root, redraw = () => drawCharts(root)) {
  const smoothing = make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: chosen.smoothing });
  const log = make("input", { type: "checkbox" });
  log.checked = chosen.log;
  smoothing.addEventListener("input", () => { chosen.smoothing = Number(smoothing.value); redraw(); });
  log.addEventListener("change", () => { chosen.log = log.checked; redraw(); });
  return make("div", { class: "controls" }, make("label", {}, "smoothing", smoothing), make("label", {}, log, "logarithmic loss"));
}

function drawRun(root, run) {
  const open = new Set([...root.querySelectorAll("details[open]")].map((each) => each.id));
  const charts = runCharts(run);
  const training = charts.length
    ? section("Training", controls(root), make("div", { class: "charts" }, ...charts))
    : section("Training", make("p", {}, "metrics.jsonl has no training line yet."));
  const memory = seriesOf(run, "process_memory", "", 3, {});
  const memoryChart = memory && chart([memory], { title: "Memory of the process", unit: "resident", wide: true, height: 170, fromZero: true, format: bytes });
  root.replaceChildren(headerOf(run), ...[training, expertCharts(run), otherCharts(run), memorySection(run, memoryChart),
    timeSection(run), programSection(run), samplesSection(run), eventsSection(run), settingsSection(run), graphSection(run)].filter(Boolean));
  for (const each of root.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
  drawCharts(root);
}

// Asks the server that watches the run for new data, while the page is visible.
function follow(root, seconds) {
  let known = "";
  const look = async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-store" });
      const text = await answer.text();
      if (answer.ok && text !== known && document.activeElement.type !== "search") {
        known = text;
        const scroll = window.scrollY;
        drawRun(root, JSON.parse(text).runs[0]);
        window.scrollTo(0, scroll);
      }
    } catch (error) {
      const state = root.querySelector(".state");
      if (state) state.textContent = "the server of this page has ended";
    }
    window.setTimeout(look, 1000 * seconds);
  };
  window.setTimeout(look, 1000 * seconds);
}
