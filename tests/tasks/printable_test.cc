// SPDX-License-Identifier: Apache-2.0
#include "tasks/printable.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

const std::string kMark = "\xef\xbf\xbd";

TEST_CASE("text of people is shown as it is") {
  const std::string text = "to be,\n\tor not: caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  REQUIRE(printable(text) == text);
}

TEST_CASE("a terminal is spared control characters and broken bytes") {
  REQUIRE(printable("a\x1b[31m\x07") == "a" + kMark + "[31m" + kMark);
  REQUIRE(printable("\xc2\x9b") == kMark);  // A control sequence in one.
  REQUIRE(printable("\xff"
                    "a\xc3") == kMark + "a" + kMark);           // No lead byte; cut short.
  REQUIRE(printable("\xc0\xaf") == kMark + kMark);              // Overlong.
  REQUIRE(printable("\xed\xa0\x80") == kMark + kMark + kMark);  // A surrogate.
}

}  // namespace
}  // namespace tessera
