// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/recording.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "tasks/replay/array_difference.h"
#include "tasks/replay/other_side.h"
#include "tasks/replay/replay.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

LaunchRecord record_of(int64_t device, int64_t launch, size_t bytes) {
  const std::vector<std::byte> array(bytes, std::byte{7});
  return {.device = device,
          .launch = launch,
          .inputs = {{array_hash({})}, {}},
          .outputs = {{array_hash(array)}, {array}}};
}

// Two devices that were not in step with each other.
std::filesystem::path written_recording(const TemporaryDirectory& folder) {
  const std::filesystem::path path = folder / "step.rec";
  RecordingWriter writer(path, {.step = 3,
                                .experiment = "tests.Tiny",
                                .build = "1",
                                .device = "cpu \"x\"",
                                .mesh = "data=2",
                                .graph = "abcd",
                                .trained_from = 2,
                                .values = RecordedValues::kOutputs,
                                .programs = {{"a [forward]", "b [update]"}}});
  for (const auto& [device, launch] : {std::pair(0, 1), {0, 2}, {1, 1}, {1, 2}})
    writer.add(record_of(device, launch, 100000));
  writer.finish(std::numeric_limits<double>::quiet_NaN(), 0.1);
  return path;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void read_all(const std::filesystem::path& path) { OtherSide(RecordingReader::open(path)).end(); }

TEST_CASE("a recording returns what was written, in any order of devices") {
  const TemporaryDirectory folder;
  OtherSide side(RecordingReader::open(written_recording(folder)));
  REQUIRE(side.header().step == 3);
  REQUIRE(side.header().device == "cpu \"x\"");
  REQUIRE(side.header().trained_from == 2);
  REQUIRE(side.header().programs[0][1] == "b [update]");
  for (const auto& [device, launch] : {std::pair(1, 1), {0, 1}, {1, 2}, {0, 2}}) {
    const LaunchRecord taken = side.take(device, launch);
    REQUIRE(taken.device == device);
    REQUIRE(taken.outputs.values[0].size() == 100000);
    REQUIRE(taken.inputs.values.empty());
  }
  const RecordingEnd end = side.end();
  REQUIRE(end.launches == 4);
  REQUIRE(std::isnan(end.loss));
  REQUIRE(end.grad_norm == 0.1);
}

TEST_CASE("a launch that a recording lacks is an error") {
  const TemporaryDirectory folder;
  OtherSide side(RecordingReader::open(written_recording(folder)));
  REQUIRE_THAT(message_of([&] { side.take(0, 3); }), Contains("has no launch 3 of device 0"));
}

TEST_CASE("a recording that is cut short or changed anywhere is refused") {
  const TemporaryDirectory folder;
  const std::string bytes = read_bytes(written_recording(folder));
  const std::filesystem::path changed = folder / "changed.rec";
  for (size_t size = 0; size < bytes.size(); size += bytes.size() / 40) {
    write_bytes(changed, bytes.substr(0, size));
    REQUIRE_THAT(message_of([&] { read_all(changed); }), Contains("changed.rec"));
  }
  for (size_t at = 0; at < bytes.size(); at += bytes.size() / 40) {
    std::string flipped = bytes;
    flipped[at] ^= 1;
    write_bytes(changed, flipped);
    REQUIRE_THAT(message_of([&] { read_all(changed); }), Contains("changed.rec"));
  }
}

TEST_CASE("an unfinished recording leaves no file") {
  const TemporaryDirectory folder;
  { const RecordingWriter writer(folder / "step.rec", {}); }
  REQUIRE(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a second process that fails is reported with its last line") {
  const std::string message = message_of([] {
    start_other_side({"sh", "-c", "echo first >&2; echo 'no such device' >&2; exit 2"}, "");
  });
  REQUIRE_THAT(message, Contains("the other side ended") && Contains(": no such device"));
}

TEST_CASE("--against names a setting or a file") {
  REQUIRE(parse_other_side("threads:4").kind == OtherSideChoice::Kind::kThreads);
  REQUIRE(parse_other_side("build:/a:b/runexp").value == "/a:b/runexp");
  REQUIRE_THAT(message_of([] { parse_other_side("devices:x"); }),
               Contains("did you mean 'device'?"));
  REQUIRE_THAT(message_of([] { parse_other_side("gone"); }), Contains("no such file"));
}

}  // namespace
}  // namespace tessera
