// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/console.h"

#include <limits>

#include "tasks/run/decode/decode_examples.h"
#include "tasks/run/eval/eval_output.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("the progress line shows step, loss, tokens per second, MFU and time left") {
  const Progress progress{.step = 120,
                          .num_steps = 2000,
                          .loss = 2.10341,
                          .tokens_per_second = 12345.0,
                          .mfu = 0.41,
                          .seconds_left = 34.4};
  REQUIRE(progress_text(progress) ==
          "step  120/2000  loss 2.1034  12.3k tokens/s  MFU 41.0 %  0:34 left");
}

TEST_CASE("an unknown MFU is omitted") {
  const Progress progress{.step = 1, .num_steps = 9, .loss = 1.0, .mfu = -1.0};
  REQUIRE(progress_text(progress) == "step 1/9  loss 1.0000  0 tokens/s  0:00 left");
}

TEST_CASE("no number is printed as -nan") {
  const double negative_nan = -std::numeric_limits<double>::quiet_NaN();
  const Progress progress{.step = 1, .num_steps = 9, .loss = negative_nan, .mfu = -1.0};
  REQUIRE(progress_text(progress) == "step 1/9  loss nan  0 tokens/s  0:00 left");
  DecodedExample example;
  example.samples.push_back({.text = "x", .log_probability = negative_nan, .score = negative_nan});
  REQUIRE_THAT(sample_view(example) + sample_markdown(example) + sample_line(example, 0, 1),
               !Catch::Contains("-nan"));
  for (const std::string& line : eval_table(1, {{"eval/v/loss", negative_nan}}))
    REQUIRE_THAT(line, !Catch::Contains("nan"));
}

TEST_CASE("durations and counts are abbreviated") {
  REQUIRE(duration_text(59.6) == "1:00");
  REQUIRE(duration_text(3723) == "1:02:03");
  REQUIRE(count_text(999) == "999");
  REQUIRE(count_text(124.4e6) == "124.40M");
  REQUIRE(count_text(1.1e9) == "1.10B");
}

}  // namespace
}  // namespace tessera
