// SPDX-License-Identifier: Apache-2.0
// The drawings docs/images/pipeline_*.svg, which this test has docs/images/pipelines.py write if it
// runs with TESSERA_UPDATE_GOLDENS=1; and the example of docs/parallelism.md.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "core/schedules/generators.h"
#include "core/schedules/table.h"
#include "core/schedules/timeline.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("the drawings of the documents are those of the generators") {
  const std::string python = python_with("re");
  if (python.empty()) return skip_test("no Python");
  constexpr int64_t kStages = 4, kMicrobatches = 8, kChunks = 2;
  const std::map<std::string, PipelineTable> drawn = {
      {"gpipe", gpipe_table(kStages, kMicrobatches)},
      {"1f1b", one_forward_one_backward_table(kStages, kMicrobatches)},
      {"interleaved", interleaved_table(kStages, kMicrobatches, kChunks)},
      {"circular", circular_table(kStages, kMicrobatches, kChunks)},
      {"zero_bubble", zero_bubble_h1_table(kStages, kMicrobatches)}};
  const TemporaryDirectory directory;
  const double shown = pipeline_timeline(drawn.at("gpipe"), {}).finish;  // All to one scale.
  for (const auto& [name, table] : drawn) {
    std::ofstream(directory / "schedule.txt") << pipeline_text(table);
    const std::string source = TESSERA_SOURCE_DIR;
    const std::string command =
        fmt::format("{} {}/docs/images/pipelines.py {} < {} > {}", python, source, shown,
                    (directory / "schedule.txt").string(), (directory / "drawing.svg").string());
    REQUIRE(std::system(command.c_str()) == 0);
    const std::string svg = read(directory / "drawing.svg");
    const std::string file = source + "/docs/images/pipeline_" + name + ".svg";
    if (std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr) std::ofstream(file) << svg;
    INFO(file << " differs; if that is meant, run with TESSERA_UPDATE_GOLDENS=1");
    REQUIRE((read(file) == svg));
  }
}

TEST_CASE("the example of the documents prints what they say") {
  const PipelineTable table = zero_bubble_h1_table(2, 3);
  const PipelineTimeline timeline =
      pipeline_timeline(table, {.pieces = {{2, 2, 2}, {3, 3, 3}}, .send = 0.5});
  REQUIRE_THAT(read(std::string(TESSERA_SOURCE_DIR) + "/docs/parallelism.md"),
               Catch::Contains("```text\n" + pipeline_text(table) + bubble_text(timeline) + "```"));
}

}  // namespace
}  // namespace tessera
