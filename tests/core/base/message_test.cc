// SPDX-License-Identifier: Apache-2.0
#include "core/base/message.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

enum class Kind : int32_t { kOne, kTwo };

TEST_CASE("a message has the values that were packed, in their order") {
  const std::string bytes("a\0b: 3", 6);
  const std::vector<int32_t> ids = {-1, 0, 7};
  const std::map<std::string, double> metrics = {{"", -0.0}, {"loss", 2.5}};
  const std::string message = pack(Kind::kTwo, int64_t{-5}, bytes, ids, metrics, true);
  Kind kind{};
  int64_t number = 0;
  std::string text;
  std::vector<int32_t> numbers = {9, 9, 9, 9};
  std::map<std::string, double> values;
  bool flag = false;
  unpack(message, kind, number, text, numbers, values, flag);
  REQUIRE(kind == Kind::kTwo);
  REQUIRE(number == -5);
  REQUIRE(text == bytes);
  REQUIRE(numbers == ids);
  REQUIRE(values == metrics);
  REQUIRE(flag);
}

}  // namespace
}  // namespace tessera
