// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files: compared with bytes written by hand, and read by TensorBoard.
#include "tasks/run/log/event_file.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using namespace std::string_literals;

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// The payloads of a file's records; fails on a wrong checksum.
std::vector<std::string> records(const std::filesystem::path& path) {
  const std::string bytes = read_bytes(path);
  std::vector<std::string> payloads;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    REQUIRE(crc == masked(std::string_view(bytes).substr(at, 8)));
    payloads.push_back(bytes.substr(at + 12, length));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    REQUIRE(crc == masked(payloads.back()));
    at += 16 + length;
  }
  return payloads;
}

TEST_CASE("events are encoded as the protocol buffers that TensorBoard expects") {
  const TemporaryDirectory directory;
  EventFile file(directory / "summaries/train", 301);
  file.scalar(300, "loss", 1.5);
  file.text(1, "t", "*x*");
  file.histogram(1, "h", equal_bins({2.0, NAN, 2.0}));
  file.histogram(1, "nothing", equal_bins({NAN}));
  file.flush();
  const std::vector<std::string> events = records(file.path());
  REQUIRE(events.size() == 5);
  for (const std::string& event : events) REQUIRE(event[0] == '\x09');  // wall_time
  const auto after_time = [&](size_t i) { return events[i].substr(9); };
  REQUIRE(after_time(0) ==
          "\x10\0\x1a\x0d"
          "brain.Event:2"s);
  REQUIRE(after_time(1) == "\x10\xad\x02\x3a\x02\x08\x01"s);
  REQUIRE(after_time(2) == "\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\xc0\x3f"s);
  REQUIRE(after_time(3) ==
          "\x10\x01\x2a\x18\x0a\x16\x0a\x01t\x42\x07\x08\x07\x42\x03*x*\x4a\x08\x0a\x06\x0a\x04"
          "text"s);
  // min, max, num, sum, sum_squares as doubles; then one bucket up to 2, with 2 values.
  const std::string two = "\0\0\0\0\0\0\0\x40"s, four = "\0\0\0\0\0\0\x10\x40"s,
                    eight = "\0\0\0\0\0\0\x20\x40"s;
  const std::string proto = "\x09" + two + "\x11" + two + "\x19" + two + "\x21" + four + "\x29" +
                            eight + "\x32\x08" + two + "\x3a\x08" + two;
  REQUIRE(after_time(4) == "\x10\x01\x2a\x48\x0a\x46\x0a\x01h\x2a\x41" + proto);
}

TEST_CASE("TensorBoard reads the event files") {
  const std::string python = python_with("tensorboard");
  if (python.empty()) {
    WARN("skipped: no Python with tensorboard ($TESSERA_PYTHON names one)");
    return;
  }
  const TemporaryDirectory directory;
  {
    EventFile file(directory / "train", 0);
    for (int64_t step = 1; step <= 300; ++step)
      file.scalar(step, "loss", 1.0 / static_cast<double>(step));
    file.histogram(7, "load", equal_bins({0.0, 0.25, 0.25, 1.0, 3.0}));
    file.text(0, "parameters", "| a | b |\n|---|---|\n| 1 | é |");
  }
  {
    EventFile resumed(directory / "train", 201);  // Repeats steps 201 to 300 and continues.
    for (int64_t step = 201; step <= 310; ++step) resumed.scalar(step, "loss", 7.0);
  }
  write_bytes(directory / "read.py", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
tags = accumulator.Tags()
if "loss" in tags["scalars"]:
    loss = [(e.step, e.value) for e in accumulator.Scalars("loss")]
else:
    from tensorboard.util import tensor_util
    loss = [(e.step, tensor_util.make_ndarray(e.tensor_proto).item())
            for e in accumulator.Tensors("loss")]
assert [step for step, _ in loss] == list(range(1, 311)), loss
assert abs(loss[99][1] - 0.01) < 1e-8 and loss[200][1] == 7.0 and loss[309][1] == 7.0
text = accumulator.Tensors("parameters")[0].tensor_proto.string_val[0].decode()
assert text == "| a | b |\n|---|---|\n| 1 | é |", text
assert accumulator.SummaryMetadata("parameters").plugin_data.plugin_name == "text"
if "load" in tags["histograms"]:
    (load,) = accumulator.Histograms("load")
    value = load.histogram_value
    left = [value.min] + list(value.bucket_limit[:-1])
    buckets = list(zip(left, value.bucket_limit, value.bucket))
else:
    from tensorboard.util import tensor_util
    (load,) = accumulator.Tensors("load")
    buckets = tensor_util.make_ndarray(load.tensor_proto).tolist()
    assert accumulator.SummaryMetadata("load").plugin_data.plugin_name == "histograms"
assert load.step == 7 and len(buckets) == 30, buckets
assert buckets[0][0] == 0 and buckets[-1][1] == 3, buckets
for low, high, count in buckets:
    inside = [v for v in (0, 0.25, 0.25, 1, 3) if low < v <= high or v == low == 0]
    assert count == len(inside), (low, high, count)
)");
  REQUIRE(std::system(fmt::format("{} {} {} 2>/dev/null", python, (directory / "read.py").string(),
                                  (directory / "train").string())
                          .c_str()) == 0);
}

}  // namespace
}  // namespace tessera
