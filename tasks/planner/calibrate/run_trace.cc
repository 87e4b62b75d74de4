// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/run_trace.h"

#include <cmath>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/io/json.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/foreign_format.h"

namespace tessera {
namespace {

constexpr size_t kMostTraceBytes = size_t{256} << 20;  // Largest decompressed trace.
constexpr int64_t kCompute = 1;                        // "tid" of the compute track.

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.as_number() * 1000.0);
}

TraceSlice slice_of(const Json& event) {
  const int64_t track = event.at("tid").as_integer();
  TraceSlice slice{
      .device = event.at("pid").as_integer() - 1,
      .track = track == kCompute ? TraceTrackKind::kCompute : TraceTrackKind::kCommunication,
      .name = event.at("name").as_string(),
      .begin_ns = nanoseconds(event.at("ts"))};
  slice.end_ns = slice.begin_ns + nanoseconds(event.at("dur"));
  const Json* const arguments = event.find("args");
  if (arguments == nullptr) return slice;
  slice.is_launch = true;
  slice.line = arguments->at("line").as_string();
  if (const Json* const launch = arguments->find("launch")) slice.launch = launch->as_string();
  return slice;
}

}  // namespace

std::optional<int64_t> TraceSlice::step() const {
  constexpr std::string_view kPrefix = "step ";
  if (is_launch || !name.starts_with(kPrefix)) return std::nullopt;
  return parse_integer(std::string_view(name).substr(kPrefix.size()));
}

std::vector<TraceSlice> trace_slices(std::string_view trace, const std::string& where) {
  const Json document = parse_json(trace, where);
  std::vector<TraceSlice> slices;
  bool has_launches = false;
  for (const Json& event : document.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    slices.push_back(slice_of(event));
    slices.back().index = slices.size() - 1;
    has_launches = has_launches || slices.back().is_launch;
  }
  if (!has_launches) fail("{} has no launches", where);
  return slices;
}

std::string read_trace(const std::filesystem::path& file) {
  const auto source = decompress_by_name(open_file(file), file);
  std::string text, block(size_t{1} << 18, '\0');
  while (const size_t read = source->read(block.data(), block.size())) {
    text.append(block, 0, read);
    if (text.size() > kMostTraceBytes)
      fail("{} has more than {} MiB, too much to show; it opens in ui.perfetto.dev", file.string(),
           kMostTraceBytes >> 20);
  }
  return text;
}

}  // namespace tessera
