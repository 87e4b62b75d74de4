// SPDX-License-Identifier: Apache-2.0
#include "core/io/trace_events.h"

#include "core/io/json.h"

namespace tessera {

std::string trace_name(std::string_view what, TraceTrack track, std::string_view name) {
  return json_object({{"name", what},
                      {"ph", "M"},
                      {"pid", track.process},
                      {"tid", track.thread},
                      {"args", RawJson{json_object({{"name", name}})}}});
}

std::string trace_slice(TraceTrack track, std::string_view name, double begin, double end,
                        const std::string& arguments) {
  JsonLine line;
  line.add("name", name).add("ph", std::string_view("X"));
  line.add("ts", begin).add("dur", end - begin);
  line.add("pid", track.process).add("tid", track.thread);
  if (!arguments.empty()) line.add_raw("args", arguments);
  return line.text();
}

std::string trace_counter(TraceTrack track, std::string_view name, double time,
                          const std::string& series) {
  JsonLine line;
  line.add("name", name).add("ph", std::string_view("C")).add("ts", time);
  line.add("pid", track.process).add("tid", track.thread);
  return line.add_raw("args", series).text();
}

std::string trace_document(const std::string& events) {
  return "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n" + events + "\n]}\n";
}

}  // namespace tessera
