// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/launch_trace.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/trace_events.h"
#include "core/ops/attention.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Most ops in the name of a fused launch, which lists its first ones.
constexpr size_t kMostOpsNamed = 5;

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Returns Chrome's "process" and "thread" of a track: the device, and 1 or 2.
TraceTrack ids_of(int64_t device, Track track) {
  return {device + 1, track == Track::kCompute ? int64_t{1} : int64_t{2}};
}

std::string gzipped(std::string_view text) {
  constexpr int kWindowBits = 15 + 16;  // The largest window; the 16 selects gzip's header.
  constexpr int kMemoryLevel = 8;       // zlib's default.
  z_stream stream{};
  CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) == Z_OK);
  std::string zipped;
  std::array<char, 1 << 16> block;
  int result = Z_OK;
  while (result == Z_OK) {
    // zlib's sizes have 32 bits.
    if (stream.avail_in == 0) {
      const std::string_view part = text.substr(0, size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      stream.avail_in = static_cast<uInt>(part.size());
      text.remove_prefix(part.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    result = deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    zipped.append(block.data(), block.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  CHECK(result == Z_STREAM_END, "zlib: {}", result);
  return zipped;
}

// Limits the text: updates of many parameters are one launch.
constexpr size_t kMostBytes = 400;

void append_ops(const Node& node, std::string& text) {
  if (node.bodies.empty()) {
    text += node.op->name;
    return;
  }
  text += "fused";
  for (const Node& inner : node.bodies[0]->nodes()) {
    text += ' ';
    text += inner.op->name;
  }
}

void append_types(const Graph& graph, const std::vector<ValueId>& values, std::string& text) {
  text += '(';
  std::string_view separator;
  for (const ValueId value : values) {
    text += separator;
    text += graph.type(value).text_sized();
    separator = ", ";
  }
  text += ')';
}

}  // namespace

std::string launch_name(const Node& node, LaunchKind kind) {
  if (kind == LaunchKind::kWait) return fmt::format("wait for {}", node.op->name);
  if (node.bodies.empty()) return std::string(node.op->name);
  std::string name = "fused";
  size_t named = 0;
  for (const Node& inner : node.bodies[0]->nodes()) {
    if (inner.inputs.empty()) continue;  // A generator.
    if (++named > kMostOpsNamed) return name + " …";
    name += fmt::format(" {}", inner.op->name);
  }
  return name;
}

void LaunchTrace::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

LaunchObserver LaunchTrace::observer() {
  return [this](const Graph& graph, const Node& node, const LaunchTimes& times) {
    add(graph, node, times);
  };
}

void LaunchTrace::add(const Graph& graph, const Node& node, const LaunchTimes& times) {
  const std::lock_guard lock(mutex_);
  Launch launch{.name = launch_name(node, times.kind),
                .ancestry = {fmt::format("step {}", step_)},
                .type = times.kind == LaunchKind::kWait ? "" : launch_type(graph, node),
                .site = node.site.text(),
                .result = node.outputs.empty() ? "" : graph.type(node.outputs[0]).text_sized(),
                .begin_ns = times.begin_ns,
                .end_ns = times.end_ns};
  if (!times.task.empty()) launch.ancestry.emplace_back(times.task);
  launch.ancestry.emplace_back(phase_name(node.phase));
  std::string_view path = node.path;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    launch.ancestry.emplace_back(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  tracks_[{times.device, times.track}].push_back(std::move(launch));
}

std::string LaunchTrace::json() const {
  const std::lock_guard lock(mutex_);
  int64_t origin = tracks_.empty() ? 0 : std::numeric_limits<int64_t>::max();
  for (const auto& [key, launches] : tracks_) origin = std::min(origin, launches.front().begin_ns);
  std::string events;
  const auto emit = [&](const std::string& event) {
    if (!events.empty()) events += ",\n";
    events += event;
  };
  for (const auto& [key, launches] : tracks_) {
    const TraceTrack ids = ids_of(key.first, key.second);
    emit(trace_name("process_name", ids, fmt::format("device {}", key.first)));
    emit(trace_name("thread_name", ids,
                    key.second == Track::kCompute ? "compute" : "communication"));
    // Path parts of the last launch, and when each began.
    std::vector<std::pair<std::string, int64_t>> open;
    int64_t last_end = origin;
    const auto close_to = [&](size_t depth) {
      for (; open.size() > depth; open.pop_back())
        emit(trace_slice(ids, open.back().first, microseconds(open.back().second - origin),
                         microseconds(last_end - origin)));
    };
    for (const Launch& launch : launches) {
      size_t shared = 0;
      while (shared < open.size() && shared < launch.ancestry.size() &&
             open[shared].first == launch.ancestry[shared])
        ++shared;
      close_to(shared);
      for (size_t i = shared; i < launch.ancestry.size(); ++i)
        open.emplace_back(launch.ancestry[i], launch.begin_ns);
      JsonLine arguments;
      arguments.add("result", std::string_view(launch.result));
      arguments.add("line", std::string_view(launch.site));
      if (!launch.type.empty()) arguments.add("launch", std::string_view(launch.type));
      emit(trace_slice(ids, launch.name, microseconds(launch.begin_ns - origin),
                       microseconds(launch.end_ns - origin), arguments.text()));
      last_end = launch.end_ns;
    }
    close_to(0);
  }
  return trace_document(events);
}

void LaunchTrace::write(const std::filesystem::path& path) const {
  try {
    write_file_atomically(path, gzipped(json()));
  } catch (const std::exception& error) {
    fail("cannot write the trace {}: {}", path.string(), error_text(error));
  }
}

std::string launch_type(const Graph& graph, const Node& node) {
  std::string text;
  append_ops(node, text);
  if (is_collective(node))
    fmt::format_to(std::back_inserter(text), " over {} ({} devices)",
                   fmt::join(node.attributes.get(key::kMeshAxes), "/"),
                   node.attributes.get(key::kGroup).size());
  if (node.attributes.get_or(key::kCausal, false)) text += " causal";
  text += ' ';
  append_types(graph, node.inputs, text);
  text += " -> ";
  append_types(graph, node.outputs, text);
  if (text.size() <= kMostBytes) return text;
  const uint32_t hash = crc32c(std::as_bytes(std::span(text)));
  return fmt::format("{}... #{:08x}", std::string_view(text).substr(0, kMostBytes), hash);
}

}  // namespace tessera
