// SPDX-License-Identifier: Apache-2.0
// The optimised program of a step: its launches as a tree of phases and layers, and the memory in
// use at each launch, from program.json.
"use strict";

const kPhases = ["forward", "backward", "update"];

// A tree of the rows: {name, place, children, rows, count, bytes, sent, flops, seconds}, in the
// order of the program. `seconds` is null where the trace has no time.
function programTree(program, rowSeconds) {
  const node = (name, place) =>
    ({ name, place, children: [], rows: [], count: 0, bytes: 0, sent: 0, flops: 0, seconds: null });
  const root = node("", "");
  program.rows.forEach((row, i) => {
    const seconds = rowSeconds ? rowSeconds[i] : null;
    let at = root;
    const visit = (each) => {
      each.count += row.count;
      each.bytes += row.bytes;
      each.sent += row.sent_bytes;
      each.flops += row.flops;
      if (seconds !== null) each.seconds = (each.seconds || 0) + seconds;
    };
    visit(root);
    for (const part of [row.phase, ...(row.path ? row.path.split(".") : [])]) {
      let child = at.children.find((each) => each.name === part);
      if (!child) at.children.push(child = node(part, at.place ? `${at.place}.${part}` : part));
      at = child;
      visit(at);
    }
    at.rows.push({ ...row, seconds });
  });
  return root;
}

// "lm", then "transformer", then "x_layers[]" as one line, where each has no more than the next.
function chained(node) {
  while (node.rows.length === 0 && node.children.length === 1 && !kPhases.includes(node.name))
    node = { ...node.children[0], name: `${node.name}.${node.children[0].name}` };
  return node;
}

const launchesOf = (count) => `${count.toLocaleString("en")} launch${count === 1 ? "" : "es"}`;

// What launches do, most important first: "24 launches, 3.1 ms, 12 MiB".
function workOf(node) {
  return [launchesOf(node.count), node.seconds === null ? "" : seconds(node.seconds), node.bytes > 0 ? bytes(node.bytes) : "",
          node.sent > 0 ? `${bytes(node.sent)} sent` : ""].filter(Boolean).join(", ");
}

function programNode(node, measure, total) {
  const share = total > 0 ? (measure(node) || 0) / total : 0;
  const title = make("summary", {}, make("span", { class: "layer" }, node.name), make("span", { class: "work" }, workOf(node)), shareBar(share));
  const body = make("div", { class: "layers" });
  if (node.rows.length)
    body.append(table(
      ["launch", make("span", { class: "line-of-code" }, "line"), number("in a step"), number("time"), number("FLOPs"), number("bytes")],
      node.rows.map((row) => [make("span", { title: row.result }, row.name), make("code", { class: "line-of-code" }, row.source), number(row.count.toLocaleString("en")),
        number(row.seconds === null ? "–" : seconds(row.seconds)), number(row.flops > 0 ? short(row.flops) : "–"),
        number(row.sent_bytes > 0 ? `${bytes(row.sent_bytes)} sent` : row.bytes > 0 ? bytes(row.bytes) : "–")]), "launches"));
  for (const child of node.children) body.append(programNode(chained(child), measure, total));
  return make("details", { id: `program ${node.place}`, class: "program" }, title, body);
}

function programSection(run) {
  const program = run.program;
  if (!program) return null;
  const root = programTree(program, run.row_seconds);
  const hasTimes = root.seconds !== null;
  const measure = hasTimes ? (node) => node.seconds : (node) => node.bytes + node.sent;
  const left = program.left_out;
  const words = `After fusion and planning, a device runs ${launchesOf(program.launches_per_step)} in a step, which read and write ` +
    `${bytes(root.bytes + (left ? left.bytes : 0))} of memory. Layers of a stack, and the microbatches of a pipeline, are counted together. ` +
    (hasTimes ? "Times are those of the traced steps; bars are shares of their sum." : "Bars are shares of the bytes; steps that are traced also give times.");
  const content = [make("p", {}, words), ...root.children.map((phase) => programNode(chained(phase), measure, measure(root)))];
  if (left)
    content.push(make("p", { class: "small soft" }, `Not listed are the launches that move least: ${launchesOf(left.count)}, ${bytes(left.bytes + left.sent_bytes)}.`));
  content.push(make("p", { class: "small soft" }, "program.json in the run's directory has these rows; --dump_graph=fuse writes every node."));
  return section("Optimised program", ...content);
}

// Memory at each launch, and what it holds at the peak.
function memoryWithinStep(run) {
  const memory = run.program && run.program.memory;
  if (!memory || memory.points.length === 0) return [];
  const { backward, update } = run.program;
  const steps = memory.points.map(([launch]) => launch);
  const series = [{ name: "in use", colour: colour(0), steps, mean: memory.points.map(([, used]) => used) },
    { name: "with gaps between blocks", colour: colour(5), dash: "3 3", steps, mean: memory.points.map(([, , size]) => size) }];
  const marks = [[backward, "the backward pass begins"], [update, "the update begins"], [memory.peak_launch, "the peak"]];
  const drawing = chart(series, { title: "Memory within a step", unit: "by launch", axis: "launch", wide: true, height: 200,
    fromZero: true, format: bytes, marks: marks.filter(([launch]) => launch !== undefined) });
  const most = Math.max(1, ...memory.values.map((value) => value.bytes));
  const rows = memory.values.map((value) => [make("code", {}, value.name), number(value.count.toLocaleString("en")), number(bytes(value.bytes)), shareBar(value.bytes / most)]);
  if (memory.other_bytes > 0)
    rows.push([memory.other_values > 0 ? "smaller values, and gaps" : "gaps", number(memory.other_values > 0 ? memory.other_values.toLocaleString("en") : ""), number(bytes(memory.other_bytes)), shareBar(memory.other_bytes / most)]);
  return [make("div", { class: "charts" }, drawing),
    make("p", { class: "small soft" }, `Dotted lines: ${[backward !== undefined ? "the beginning of the backward pass" : "", update !== undefined ? "of the update" : "", `the peak, ${bytes(memory.peak_bytes, 4)} at launch ${memory.peak_launch.toLocaleString("en")} (${memory.at})`].filter(Boolean).join(", ")}.`),
    make("details", { id: "held" }, make("summary", {}, "What a device holds at the peak"),
      table(["value, of all layers", number("number"), number("bytes"), ""], rows))];
}
