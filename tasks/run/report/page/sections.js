// SPDX-License-Identifier: Apache-2.0
// The sections of the page of one run that are not charts by step: memory, time, samples, settings,
// graph.
"use strict";

function section(title, ...content) {
  return make("section", {}, make("h2", {}, title), ...content);
}

function table(headings, rows, classes = "") {
  const body = make("table", { class: classes });
  const cell = (name, value) => {
    const isNumber = typeof value === "object" && value !== null && "number" in value;
    return make(name, { class: isNumber ? "number" : undefined }, isNumber ? value.number : value);
  };
  body.append(make("tr", {}, ...headings.map((heading) => cell("th", heading))));
  for (const row of rows) body.append(make("tr", {}, ...row.map((value) => cell("td", value))));
  return body;
}

const number = (text) => ({ number: text });

// Parts of a whole as one bar with a legend.
function shares(parts, format) {
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  const bar = make("div", { class: "bar" }), legend = make("div", { class: "legend" });
  parts.forEach(([name, value], i) => {
    const block = make("div", { title: `${name}: ${format(value)}` });
    block.style.width = `${(100 * value) / total}%`;
    block.style.background = colour(i);
    const sign = make("i", { class: "block" });
    sign.style.background = colour(i);
    bar.append(block);
    legend.append(make("span", {}, sign, `${name} `, make("b", {}, format(value)), ` ${percent(value / total)}`));
  });
  return [bar, legend];
}

function memorySection(run, memoryChart) {
  const plan = run.plan;
  if (!plan && !memoryChart && !run.program) return null;
  const parts = Object.entries((plan && plan.memory_per_device) || {})
    .filter(([, value]) => value > 0)
    .map(([name, value]) => [name.replace("_", " "), value]);
  const content = [];
  if (parts.length > 0)
    content.push(
      make("p", {}, `A device needs ${bytes(plan.peak_bytes)} at the peak of a training step, and allocates ` +
           `${bytes(plan.arena_bytes)} once for all programs. Both are known before the first step.`),
      ...shares(parts, bytes));
  content.push(...memoryWithinStep(run));
  const saved = Object.entries((plan && plan.saved_for_backward) || {}).slice(0, 8);
  if (saved.length > 0) {
    const most = saved[0][1];
    content.push(make("details", { id: "saved" }, make("summary", {}, "Largest activations kept for the backward pass"),
      table(["name", number("bytes, all layers"), ""], saved.map(([name, value]) => [name, number(bytes(value)), shareBar(value / most)]))));
  }
  if (memoryChart) content.push(make("div", { class: "charts" }, memoryChart));
  return section("Memory", ...content);
}

function shareBar(share) {
  const bar = make("span", { class: "share" });
  bar.style.width = `${Math.max(0.5, 100 * share).toFixed(1)}%`;
  return make("div", { class: "share-cell" }, bar);
}

// The tree of the profile as rows of nested boxes: width is time.
function flame(phases, total, readout) {
  const kRow = 22, kDeepest = 9;
  const box = make("div", { class: "flame" });
  let rows = 0;
  const add = (node, left, depth, hue) => {
    const share = node.seconds / total;
    if (share < 0.002 || depth > kDeepest) return;
    rows = Math.max(rows, depth + 1);
    const isNamed = share > 0.03;
    const cell = make("div", { tabindex: 0, class: isNamed ? "named" : undefined }, isNamed ? node.name : "");
    cell.style.left = `${100 * left}%`;
    cell.style.width = `${100 * share}%`;
    cell.style.top = `${kRow * depth}px`;
    cell.style.background = `color-mix(in srgb, ${colour(hue)} calc(var(--cell) + ${depth % 2 ? 0 : 9}%), var(--paper))`;
    const tell = () => { readout.textContent = `${node.name}: ${seconds(node.seconds)} of each step, ${percent(share)}`; };
    cell.addEventListener("pointerenter", tell);
    cell.addEventListener("focus", tell);
    box.append(cell);
    let at = left;
    for (const child of node.children || []) {
      add(child, at, depth + 1, hue);
      at += child.seconds / total;
    }
  };
  let left = 0;
  const known = ["forward", "backward", "update"];  // Of the same colour in every run.
  phases.forEach((phase, i) => {
    add(phase, left, 0, known.includes(phase.name) ? known.indexOf(phase.name) : 3 + i);
    left += phase.seconds / total;
  });
  box.style.height = `${kRow * rows}px`;
  return box;
}

function timeSection(run) {
  const profile = run.profile;
  if (!profile) return null;
  const { steps, step_seconds: total, waiting, idle } = profile;
  const kHint = "Move over a box to see its time.";
  const readout = make("div", { class: "readout" }, kHint);
  const rest = [waiting > 0 ? `${percent(waiting / total)} is spent waiting for other devices` : "",
                idle > 0.0005 * total ? `${percent(idle / total)} passes between launches` : ""].filter(Boolean);
  const last = profile.first_step + steps - 1;
  const which = steps === 1 ? `Step ${profile.first_step} was` : `Steps ${profile.first_step} to ${last} were`;
  const words = `${which} traced launch by launch. A step takes ${seconds(total)}` +
                `${rest.length ? `; of this, ${rest.join(" and ")}` : ""}. Device ${profile.device} is shown.`;
  const most = profile.launches.length ? profile.launches[0].seconds : 1;
  const rows = profile.launches.map((each) => [
    each.name, make("code", { class: "line-of-code" }, each.line), number(String(each.count)), number(seconds(each.seconds)),
    number(percent(each.seconds / total)), shareBar(each.seconds / most)]);
  return section("Where the time goes", make("p", {}, words), flame(profile.phases, total, readout), readout,
    make("details", { id: "launches" }, make("summary", {}, "The launches that take most time, by line of layer code"),
      table(["launch", make("span", { class: "line-of-code" }, "line"), number("in a step"), number("time"), number("share"), ""], rows)),
    make("p", { class: "small soft" }, "trace.json.gz in the run's directory has every launch; it opens in ui.perfetto.dev."));
}

function samplesSection(run) {
  if (!run.samples || run.samples.length === 0) return null;
  const show = (sample) => make("div", { class: "sample" },
    sample.prompt ? make("span", { class: "prompt" }, sample.prompt) : "", sample.continuation,
    sample.is_cut ? make("span", { class: "soft" }, " … (shortened)") : "");
  const newest = run.samples[run.samples.length - 1].step;
  const content = run.samples.filter((sample) => sample.step === newest).map(show);
  const steps = [...new Set(run.samples.map((sample) => sample.step))].filter((step) => step !== newest).reverse();
  for (const step of steps)
    content.push(make("details", { id: `samples${step}` }, make("summary", {}, `Step ${step.toLocaleString("en")}`),
      ...run.samples.filter((sample) => sample.step === step).map(show)));
  return section("Samples", make("p", { class: "soft" }, `What the model wrote after step ${newest.toLocaleString("en")}` +
    `${run.samples.some((sample) => sample.prompt) ? "; prompts are grey" : ""}.`), ...content);
}

// The lines of hparams.toml as {path, value, origin}. Its writer puts the origin in a comment at the
// end of a line, and inherited values in whole comments.
function settingsOf(text) {
  const found = [];
  let table = "";
  for (const line of text.split("\n")) {
    const heading = /^\s*\[\[?([^\]]*)\]\]?\s*$/.exec(line);
    if (heading) { table = heading[1]; continue; }
    const isInherited = line.startsWith("# ");
    const match = /^([\w."'-]+) = (.*)$/.exec(isInherited ? line.slice(2) : line);
    if (!match) continue;
    let [, key, value] = match, origin = "";
    const cut = commentAt(value);
    if (cut >= 0) [value, origin] = [value.slice(0, cut).trim(), value.slice(cut + 1).trim()];
    found.push({ path: table ? `${table}.${key}` : key, value, origin, isSet: origin !== "" && !isInherited });
  }
  return found;
}

// Where a TOML value is followed by a comment; -1: nowhere.
function commentAt(text) {
  let quote = "";
  for (let i = 0; i < text.length; ++i) {
    const c = text[i];
    if (quote) {
      if (c === "\\" && quote === '"') ++i;
      else if (c === quote) quote = "";
    } else if (c === '"' || c === "'") quote = c;
    else if (c === "#") return i;
  }
  return -1;
}

function settingsSection(run) {
  if (!run.config) return null;
  const settings = settingsOf(run.config);
  if (settings.length === 0) return section("Configuration", make("pre", {}, run.config));
  const search = make("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting" });
  const all = make("input", { type: "checkbox" });
  const holder = make("div");
  const count = make("span");
  const show = () => {
    const words = search.value.toLowerCase();
    const chosen = settings.filter((each) => (all.checked || each.isSet) &&
      `${each.path} ${each.value} ${each.origin}`.toLowerCase().includes(words));
    count.textContent = `${chosen.length} of ${settings.length}`;
    const rows = table(["setting", "value", "set by"], chosen.map((each) =>
      [make("code", {}, each.path), make("code", {}, each.value), make("span", { class: "small soft" }, each.origin || "default")]), "settings");
    [...rows.rows].slice(1).forEach((row, i) => { if (!chosen[i].isSet) row.className = "default"; });
    holder.replaceChildren(rows);
  };
  search.addEventListener("input", show);
  all.addEventListener("change", show);
  show();
  return section("Configuration",
    make("p", { class: "soft" }, "What the experiment and the command line set. hparams.toml in the run's directory rebuilds the run."),
    make("div", { class: "controls" }, search, make("label", {}, all, "show defaults and inherited values, too"), count), holder);
}

function graphSection(run) {
  if (!run.graph) return null;
  const image = make("img", { src: run.graph.image, alt: "the graph of the training step", loading: "lazy" });
  return section("Drawing of the graph", make("p", { class: "soft" }, `${run.graph.what} (${run.graph.file}).`),
    make("details", { id: "graph" }, make("summary", {}, "Show the drawing"), make("div", { class: "graph" }, image)));
}
