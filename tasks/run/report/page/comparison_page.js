// SPDX-License-Identifier: Apache-2.0
// The page that overlays several runs: a chart for each metric, final values, and what differs in
// their configurations.
"use strict";

const kDashes = [undefined, "6 3", "2 3"];

function overlay(runs, metric, options) {
  const series = runs.map((run, i) => {
    const smooth = !isEval(metric) && metric !== "learning_rate";
    const dash = kDashes[Math.floor(i / 6) % kDashes.length];
    return seriesOf(run, metric, run.name, i, { smooth, dots: isEval(metric), dash, low: undefined, high: undefined });
  }).filter(Boolean);
  return series.length ? chart(series, { smoothing: () => chosen.smoothing, ...options }) : null;
}

// Of many runs, such as those of a sweep, each is a row of one table.
function comparisonTables(data) {
  const runs = data.runs, kMostColumns = 5;
  const wrap = (content) => make("div", { class: "scroll" }, content);
  const heading = (run, i) => {
    const line = make("i", { class: "block" });
    line.style.background = colour(i);
    return number(make("span", { class: "legend right" }, make("span", {}, line, run.name)));
  };
  const finals = data.finals.map(([name, values]) => [name, ...values.map((value) => number(value === null ? "–" : short(value, 4)))]);
  const differences = data.differences.map(([path, values]) =>
    [make("code", {}, path), ...values.map((value) => make("code", {}, value === null ? "absent" : value))]);
  const same = make("p", {}, "The runs have the same configuration.");
  if (runs.length > kMostColumns) {
    const headings = ["run", ...differences.map(([path]) => path), ...finals.map(([name]) => number(name))];
    const rows = runs.map((run, i) => [heading(run, i), ...[...differences, ...finals].map((row) => row[i + 1])]);
    return [section("Settings that differ, and final values", differences.length ? "" : same, wrap(table(headings, rows))), []];
  }
  return [
    section("Final values", wrap(table(["metric", ...runs.map(heading)], finals))),
    [section("Differences of configuration", differences.length
      ? wrap(table(["setting", ...runs.map((run) => run.name)], differences)) : same)]];
}

function drawComparison(root, data) {
  const runs = data.runs;
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.series)))];
  const log = () => chosen.log;
  const isHeld = (metric) => (name) => isEval(name) && evalParts(name)[1] === metric;
  const held = names.filter(isHeld(names.some(isHeld("log_pplx")) ? "log_pplx" : "loss"));
  const rest = names.filter((name) => !kOwnCharts.has(name) && !held.includes(name) &&
    !(isEval(name) && ["weight", "perplexity", "loss"].includes(evalParts(name)[1])));
  const charts = [
    overlay(runs, "loss", { title: "Training loss", unit: "nats per token", wide: true, log, format: (value, digits = 4) => short(value, digits) }),
    ...held.map((name) => overlay(runs, name, { title: `Held out, ${evalParts(name)[0]}`, unit: "nats per token", wide: held.length === 1, log, format: (value, digits = 4) => short(value, digits) })),
    overlay(runs, "learning_rate", { title: "Learning rate", fromZero: true }),
    overlay(runs, "grad_norm", { title: "Gradient norm", log }),
    overlay(runs, "tokens_per_sec", { title: "Throughput", unit: "tokens per second", fromZero: true }),
    overlay(runs, "mfu", { title: "Model FLOP/s utilization", fromZero: true, format: percent }),
    overlay(runs, "input_wait", { title: "Waiting for input", unit: "in a step", fromZero: true, format: seconds }),
    overlay(runs, "expert_load_max", { title: "Load of the most loaded expert", fromZero: true }),
    ...rest.slice(0, 18).map((name) => overlay(runs, name, { title: name.replaceAll("_", " ") })),
  ].filter(Boolean);
  const training = section("Training", charts.length ? controls(root) : "None of the runs has a training line.", make("div", { class: "charts" }, ...charts));
  const [first, last] = comparisonTables(data);
  root.replaceChildren(
    make("header", {}, make("h1", {}, `${runs.length} runs`),
      ...runs.map((run) => make("p", { class: "subtitle mono soft" }, run.directory))),
    first, training, ...last);
  drawCharts(root);
}
