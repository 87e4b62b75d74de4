// SPDX-License-Identifier: Apache-2.0
// Tests the profile of a step, from a trace of two steps.
#include "tasks/run/report/step_profile.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/run/report/sample_run.h"

namespace tessera {
namespace {

TEST_CASE("a profile is the average of the traced steps, with the layers of a stack as one") {
  const StepProfile profile = profile_of(sample_trace(), "trace");
  REQUIRE(profile.device == 0);
  REQUIRE(profile.first_step == 11);  // "step 10" counts from 0.
  REQUIRE(profile.steps == 2);
  REQUIRE(profile.step_seconds == Approx(850e-6));
  REQUIRE(profile.waiting == Approx(250e-6));
  REQUIRE(profile.idle == Approx(100e-6));
  REQUIRE(profile.phases.size() == 2);
  const ProfileNode& forward = profile.phases[0];
  REQUIRE(forward.name == "forward");
  REQUIRE(forward.seconds == Approx(500e-6));
  REQUIRE(forward.children.size() == 1);
  REQUIRE(forward.children[0].name == "x_layers[]");
  REQUIRE(forward.children[0].seconds == Approx(500e-6));
  REQUIRE(forward.children[0].children[0].name == "einsum");
  REQUIRE(profile.launches.size() == 2);
  REQUIRE(profile.launches[0].name == "einsum");
  REQUIRE(profile.launches[0].line == "a.cc:1");
  REQUIRE(profile.launches[0].count == 2.0);
  REQUIRE(profile.launches[0].seconds == Approx(500e-6));
  REQUIRE(profile.seconds_of.size() == 2);
  REQUIRE(profile.seconds_of.at({"forward.x_layers[]", "einsum", "a.cc:1"}) == Approx(500e-6));
  REQUIRE(profile.seconds_of.at({"update", "wait for send", "b.cc:2"}) == Approx(250e-6));
}

TEST_CASE("what is not the trace of a run is an error that names the file") {
  const TemporaryDirectory folder;
  const auto problem = [&](const std::string& bytes) {
    write_bytes(folder / "trace.json.gz", bytes);
    return error_of([&] { read_profile(folder / "trace.json.gz"); });
  };
  REQUIRE_THAT(problem("not gzip"), Catch::Contains("trace.json.gz"));
  REQUIRE_THAT(problem(""), Catch::Contains("trace.json.gz"));
  REQUIRE_THAT(error_of([] { profile_of("{\"traceEvents\": []}", "t"); }),
               Catch::Contains("t has no launches"));
  REQUIRE_THAT(error_of([] { profile_of("{\"traceEvents\": [{\"ph\": 3}]}", "t"); }),
               Catch::Contains("t: traceEvents[0].ph is a whole number, expected a string"));
  REQUIRE_THAT(error_of([] { profile_of("[]", "t"); }), Catch::Contains("expected an object"));
}

}  // namespace
}  // namespace tessera
