// SPDX-License-Identifier: Apache-2.0
// Writes events of Chrome's trace event format, which Perfetto and chrome://tracing show. Each
// function gives one event as a JSON object; trace_document() makes a file of them. Times are in
// microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Chrome's "process" and "thread" of an event.
struct TraceTrack {
  int64_t process = 0, thread = 0;
};

// Names a process or a thread (`what`: "process_name", "thread_name").
std::string trace_name(std::string_view what, TraceTrack track, std::string_view name);

// A slice from begin to end; `arguments` is a JSON object or empty.
std::string trace_slice(TraceTrack track, std::string_view name, double begin, double end,
                        const std::string& arguments = "");

// The value of a counter of the track's process from this time on. `series` is a JSON object of
// numbers, which are stacked.
std::string trace_counter(TraceTrack track, std::string_view name, double time,
                          const std::string& series);

// Makes the file of events that are separated by ",\n".
std::string trace_document(const std::string& events);

}  // namespace tessera
