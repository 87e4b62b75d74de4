// SPDX-License-Identifier: Apache-2.0
// The drawings of pipeline schedules, among them docs/images/pipeline_*.svg, which this test writes
// if it runs with TESSERA_UPDATE_GOLDENS=1; and the example of docs/parallelism.md.
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "core/passes/pipeline/drawing.h"
#include "core/passes/pipeline/generators.h"
#include "core/passes/pipeline/text.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("the drawings of the documents are those of the generators") {
  constexpr int64_t kStages = 4, kMicrobatches = 8, kChunks = 2;
  const std::map<std::string, PipelineTable> drawn = {
      {"gpipe", gpipe_table(kStages, kMicrobatches)},
      {"1f1b", one_forward_one_backward_table(kStages, kMicrobatches)},
      {"interleaved", interleaved_table(kStages, kMicrobatches, kChunks)},
      {"circular", circular_table(kStages, kMicrobatches, kChunks)},
      {"zero_bubble", zero_bubble_h1_table(kStages, kMicrobatches)}};
  const double shown = pipeline_timeline(drawn.at("gpipe"), {}).finish;  // All to one scale.
  for (const auto& [name, table] : drawn) {
    const double part = 1.0 / static_cast<double>(table.chunks);
    const std::string svg =
        pipeline_svg(pipeline_timeline(table, {.pieces = {{part, part, part}}}), shown);
    const std::string file =
        std::string(TESSERA_SOURCE_DIR) + "/docs/images/pipeline_" + name + ".svg";
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

int64_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex),
                       std::sregex_iterator());
}

TEST_CASE("a drawing has a box for each task, as wide as its time, in the row of its stage") {
  // Of 820 pixels for 10 units of time, 82 are one unit; a gap of one pixel follows each box.
  const PipelineTable table = gpipe_table(2, 1);
  const std::string svg =
      pipeline_svg(pipeline_timeline(table, {.pieces = {{1, 1, 1}, {2, 1.5, 0.5}}}), 10.0);
  const auto has_box = [&](const char* x, const char* y, const char* width) {
    return count(svg, std::string("<rect x=\"") + x + "\" y=\"" + y + "\" width=\"" + width +
                          "\" height=\"22\" fill=\"#[0-9a-f]{6}\"/>") == 1;
  };
  REQUIRE(has_box("62.00", "50", "81.00"));    // F of stage 0, 0 to 1.
  REQUIRE(has_box("144.00", "78", "163.00"));  // F of stage 1, 1 to 3.
  REQUIRE(has_box("308.00", "78", "163.00"));  // B of stage 1, 3 to 5.
  REQUIRE(has_box("472.00", "50", "163.00"));  // B of stage 0, 5 to 7.
  REQUIRE(count(svg, "text-anchor=\"middle\">0</text>") == 4);
  REQUIRE_THAT(svg, Catch::Contains(">7, idle 50 %</text>"));
}

TEST_CASE("the legend of a drawing has the kinds of work that occur") {
  const auto svg = [](const PipelineTable& table) {
    return pipeline_svg(pipeline_timeline(table, {}));
  };
  const std::string split = svg(zero_bubble_h1_table(2, 2));
  REQUIRE(count(split, ">backward of input<") == 1);
  REQUIRE(count(split, ">backward of weight<") == 1);
  REQUIRE(count(split, ">backward<") == 0);
  REQUIRE(count(split, "darker") == 0);
  const std::string chunks = svg(circular_table(2, 2, 2));
  REQUIRE(count(chunks, ">backward<") == 1);
  REQUIRE(count(chunks, "darker") == 1);
}

TEST_CASE("the name of a schedule is text in its drawing, whatever it contains") {
  PipelineTable table = gpipe_table(1, 1);
  table.name = "<b> & c";
  REQUIRE_THAT(pipeline_svg(pipeline_timeline(table, {})), Catch::Contains(">&lt;b&gt; &amp; c<"));
}

}  // namespace
}  // namespace tessera
