// SPDX-License-Identifier: Apache-2.0
// Fuzzing of parsers. A target takes any bytes: it may throw Error, and must not do anything else
// (crash, hang, throw something else, use much memory). Inputs are mutations of seeds, the same for
// the same `first`; run under -DTESSERA_SANITIZE=address to see more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct FuzzReport {
  int64_t inputs = 0;
  int64_t refused = 0;  // Those that the target threw Error for.
};

// Runs inputs number `first` to `first + count`. A failure is thrown as std::logic_error with the
// number of the input, which is kept in tessera_fuzz_<name>.input of the temporary directory.
FuzzReport fuzz(const std::string& name, const std::vector<std::string>& seeds,
                const std::function<void(std::string_view)>& target, int64_t count,
                int64_t first = 0);

// How many inputs a fast test tries, and how many a [full] one does.
inline constexpr int64_t kFastFuzz = 3000;
inline constexpr int64_t kFullFuzz = 1000000;

}  // namespace tessera
