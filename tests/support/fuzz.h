// SPDX-License-Identifier: Apache-2.0
// Fuzzing of parsers. A target takes any bytes. It may throw Error, but must not crash, hang, throw
// anything else or use much memory. Inputs are deterministic mutations of seeds.
// -DTESSERA_SANITIZE=address detects more faults.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct FuzzReport {
  int64_t inputs = 0;
  int64_t refused = 0;  // Inputs for which the target threw Error.
};

// Runs the inputs [first, first + count). Throws a failure as std::logic_error with the number of
// the input, and saves the input as tessera_fuzz_<name>.input in the temporary directory.
FuzzReport fuzz(const std::string& name, const std::vector<std::string>& seeds,
                const std::function<void(std::string_view)>& target, int64_t count,
                int64_t first = 0);

// The numbers of inputs of a fast and of a [full] test.
inline constexpr int64_t kFastFuzz = 3000;
inline constexpr int64_t kFullFuzz = 1000000;

}  // namespace tessera
