// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl as it grows, and as a stopped machine leaves it.
#include "tasks/run/report/metrics_log.h"

#include <cmath>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

void append(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::app) << text;
}

TEST_CASE("lines are read once each as they are added, and an incomplete one when it is complete") {
  const TemporaryDirectory folder;
  const auto file = folder / "metrics.jsonl";
  MetricsLog log(file);
  REQUIRE_FALSE(log.update());
  append(file, "{\"event\": \"start\", \"step\": 0}\n{\"step\": 1, \"loss\": 5.5}\n{\"step\": 2,");
  REQUIRE(log.update());
  REQUIRE(log.step() == 1);
  REQUIRE(log.events().size() == 1);
  REQUIRE_FALSE(log.update());
  append(file, " \"loss\": null, \"mfu\": 0.5}\n");
  REQUIRE(log.update());
  REQUIRE(log.step() == 2);
  REQUIRE(std::isnan(log.last().at("loss")));
  REQUIRE(log.series().at("loss").points().size() == 2);
  REQUIRE(log.series().at("mfu").points().size() == 1);
  REQUIRE(log.damaged_lines() == 0);
}

TEST_CASE("damaged lines are counted and the others are read") {
  const TemporaryDirectory folder;
  const auto file = folder / "metrics.jsonl";
  write_bytes(file,
              "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"lo{\"step\": 3, \"loss\": 2}\n"
              "[1]\n{\"loss\": 1}\n\xff\n\n{\"step\": \"x\", \"loss\": 1}\n"
              "{\"step\": 4, \"loss\": 1}\n");
  MetricsLog log(file);
  REQUIRE(log.update());
  REQUIRE(log.damaged_lines() == 5);
  REQUIRE(log.series().at("loss").json() == R"({"s": [1,4], "m": [3,1]})");
}

TEST_CASE("a log that a resumed run has replaced is read from its beginning") {
  const TemporaryDirectory folder;
  const auto file = folder / "metrics.jsonl";
  write_bytes(file, "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n");
  MetricsLog log(file);
  log.update();
  write_bytes(folder / "new",
              "{\"step\": 1, \"loss\": 3}\n{\"event\": \"restore\", \"step\": 1}\n" +
                  std::string("{\"step\": 2, \"loss\": 7}\n"));
  std::filesystem::rename(folder / "new", file);
  REQUIRE(log.update());
  REQUIRE(log.series().at("loss").json() == R"({"s": [1,2], "m": [3,7]})");
  REQUIRE(log.events().size() == 1);
}

TEST_CASE("of the metrics of single layers the last values are kept, and no charts") {
  const TemporaryDirectory folder;
  const auto file = folder / "metrics.jsonl";
  write_bytes(file,
              "{\"step\": 1, \"loss\": 3, \"load_max\": 2, \"lm.x_layers[0].load_max\": 2, "
              "\"top.5\": 0.1, \"parameter_norm/lm.w\": 4}\n");
  MetricsLog log(file);
  log.update();
  REQUIRE(log.of_layers() == std::map<std::string, double>{{"lm.x_layers[0].load_max", 2.0},
                                                           {"parameter_norm/lm.w", 4.0}});
  REQUIRE(log.series().contains("top.5"));
  REQUIRE_FALSE(log.series().contains("lm.x_layers[0].load_max"));
}

}  // namespace
}  // namespace tessera
