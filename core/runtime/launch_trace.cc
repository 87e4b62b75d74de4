// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/launch_trace.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "core/base/error.h"
#include "core/base/json_line.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

// A fused launch is called after the first of its ops.
constexpr size_t kMostOpsNamed = 5;

std::string launch_name(const Node& node) {
  if (node.op->name != "fused") return std::string(node.op->name);
  std::string name = "fused";
  size_t named = 0;
  for (const Node& inner : node.bodies[0]->nodes()) {
    if (inner.inputs.empty()) continue;  // A generator.
    if (++named > kMostOpsNamed) return name + " …";
    name += fmt::format(" {}", inner.op->name);
  }
  return name;
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// A slice from begin to end; `arguments` is a JSON object or empty.
std::string slice(std::string_view name, int64_t begin_ns, int64_t end_ns,
                  const std::string& arguments = "") {
  JsonLine line;
  line.add("name", name).add("ph", std::string_view("X"));
  line.add("ts", microseconds(begin_ns)).add("dur", microseconds(end_ns - begin_ns));
  line.add("pid", int64_t{1}).add("tid", int64_t{1});
  if (!arguments.empty()) line.add_raw("args", arguments);
  return line.text();
}

}  // namespace

void LaunchTrace::begin_step(int64_t step) { step_ = step; }

Executor::LaunchObserver LaunchTrace::observer() {
  return [this](const Graph& graph, const Node& node, int64_t begin_ns, int64_t end_ns) {
    add(graph, node, begin_ns, end_ns);
  };
}

void LaunchTrace::add(const Graph& graph, const Node& node, int64_t begin_ns, int64_t end_ns) {
  Launch launch{.name = launch_name(node),
                .ancestry = {fmt::format("step {}", step_), std::string(phase_name(node.phase))},
                .site = node.site.text(),
                .result = node.outputs.empty() ? "" : graph.type(node.outputs[0]).text_sized(),
                .begin_ns = begin_ns,
                .end_ns = end_ns};
  std::string_view path = node.path;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    launch.ancestry.emplace_back(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  launches_.push_back(std::move(launch));
}

std::string LaunchTrace::json() const {
  const int64_t origin = launches_.empty() ? 0 : launches_.front().begin_ns;
  std::string events =
      R"({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "tessera"}})";
  const auto emit = [&](const std::string& event) { events += ",\n" + event; };
  // The ancestors that the last launch lay under, and when each began.
  std::vector<std::pair<std::string, int64_t>> open;
  int64_t last_end = origin;
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      emit(slice(open.back().first, open.back().second - origin, last_end - origin));
  };
  for (const Launch& launch : launches_) {
    size_t shared = 0;
    while (shared < open.size() && shared < launch.ancestry.size() &&
           open[shared].first == launch.ancestry[shared])
      ++shared;
    close_to(shared);
    for (size_t i = shared; i < launch.ancestry.size(); ++i)
      open.emplace_back(launch.ancestry[i], launch.begin_ns);
    emit(slice(launch.name, launch.begin_ns - origin, launch.end_ns - origin,
               JsonLine()
                   .add("result", std::string_view(launch.result))
                   .add("line", std::string_view(launch.site))
                   .text()));
    last_end = launch.end_ns;
  }
  close_to(0);
  return "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n" + events + "\n]}\n";
}

void LaunchTrace::write(const std::filesystem::path& path) const {
  const std::string text = json();
  gzFile file = gzopen(path.c_str(), "wb");
  if (file == nullptr)
    fail("cannot write the trace {}: no such directory or no permission", path.string());
  const auto written = gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  const bool closed = gzclose(file) == Z_OK;
  if (written != static_cast<int>(text.size()) || !closed)
    fail("cannot write the trace {}: the disk may be full", path.string());
}

}  // namespace tessera
