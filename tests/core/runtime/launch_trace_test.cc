// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/launch_trace.h"

#include <zlib.h>

#include "core/devices/reference/device.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

std::string unzipped(const std::filesystem::path& path) {
  std::string text(1 << 20, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  const int bytes = gzread(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  text.resize(static_cast<size_t>(bytes));
  return text;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Graph two_layers() {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const PathScope model("lm");
  Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"row=2 column=4\"]"));
  {
    const PathScope layer("first");
    x = reduce_sum(exp(x * x), "column");
  }
  {
    const PathScope layer("second \"last\"");
    output("y", reduce_sum(x));
  }
  return graph;
}

TEST_CASE("a trace shows steps, phases and layers around their launches") {
  const auto device = make_reference_device();
  Executor executor(*device);
  const int program = executor.add_program(two_layers(), {});
  executor.allocate();
  LaunchTrace trace;
  executor.observe(trace.observer());
  for (int64_t step = 7; step < 9; ++step) {
    trace.begin_step(step);
    executor.run(program);
  }
  executor.observe({});
  executor.run(program);  // No longer observed.

  const TemporaryDirectory directory;
  trace.write(directory / "trace.json.gz");
  const std::string text = unzipped(directory / "trace.json.gz");
  REQUIRE(text == trace.json());
  REQUIRE(count(text, "\"name\": \"step 7\"") == 1);
  REQUIRE(count(text, "\"name\": \"step 8\"") == 1);
  REQUIRE(count(text, "\"name\": \"step 9\"") == 0);
  REQUIRE(count(text, "\"name\": \"forward\"") == 2);
  REQUIRE(count(text, "\"name\": \"first\"") == 2);
  REQUIRE(count(text, "\"name\": \"second \\\"last\\\"\"") == 2);
  REQUIRE(count(text, "\"name\": \"fused mul exp\"") == 2);
  REQUIRE(count(text, "\"name\": \"reduce_sum\"") == 4);
  REQUIRE(count(text, "launch_trace_test.cc:") == 6);
  REQUIRE(count(text, "\"launch\": \"reduce_sum (f32[\\\"row=2\\\"]) -> (f32[\\\"\\\"])\"") == 2);
  REQUIRE(count(text, "\"launch\": ") == 6);
}

TEST_CASE("an error of writing a trace names the file") {
  REQUIRE_THAT(error_of([] { LaunchTrace().write("/nowhere/trace.json.gz"); }),
               Catch::Contains("cannot write the trace /nowhere/trace.json.gz"));
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "trace.json.gz");
  REQUIRE_THAT(error_of([&] { LaunchTrace().write(directory / "trace.json.gz"); }),
               Catch::Contains("expected a regular file, got a directory"));
  REQUIRE(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

}  // namespace
}  // namespace tessera
