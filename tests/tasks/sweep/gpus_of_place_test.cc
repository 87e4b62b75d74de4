// SPDX-License-Identifier: Apache-2.0
// The GPUs of trials that run at the same time.
#include "tasks/sweep/runner.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("trials that run at the same time have GPUs of their own") {
  REQUIRE(gpus_of_place(0, 2, "") == "0,1");
  REQUIRE(gpus_of_place(1, 2, "") == "2,3");
  REQUIRE(gpus_of_place(1, 1, "3,5") == "5");
  REQUIRE(error_of([] { gpus_of_place(1, 2, "3,5,6"); }) ==
          "CUDA_VISIBLE_DEVICES=3,5,6 has 3 GPUs, but the trials that run at the same time use 4 "
          "or more; give a lower --sweep_processes");
}

}  // namespace
}  // namespace tessera
