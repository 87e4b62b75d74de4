// SPDX-License-Identifier: Apache-2.0
#include "core/base/printable.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("printable text is unchanged") {
  const std::string text = "to be,\n\tor not: caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  REQUIRE(printable(text) == text);
}

TEST_CASE("control characters and invalid bytes are escaped for a terminal") {
  REQUIRE(printable("a\x1b[31m\x07") == "a\\x1b[31m\\x07");
  REQUIRE(printable("a\rb\x7f") == "a\\x0db\\x7f");
  REQUIRE(printable("\xc2\x9b") == "\\u009b");  // A control character of two bytes.
  REQUIRE(printable("\xff"
                    "a\xc3") == "\\xffa\\xc3");    // An invalid byte; a truncated sequence.
  REQUIRE(printable("\xc0\xaf") == "\\xc0\\xaf");  // Overlong.
  REQUIRE(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // A surrogate.
  REQUIRE(printable("\xe2\x80\xae") == "\\u202e");          // Right-to-left override.
  REQUIRE(printable("\xe2\x80\x8b\xef\xbb\xbf") == "\\u200b\\ufeff");
  REQUIRE(printable("\xd8\x9c\xf3\xa0\x81\x81") == "\\u061c\\U000e0041");  // A mark; a tag.
}

TEST_CASE("valid_utf8 replaces invalid bytes with U+FFFD and changes nothing else") {
  REQUIRE(valid_utf8("\x1b\xff"
                     "caf\xc3\xa9") ==
          "\x1b\xef\xbf\xbd"
          "caf\xc3\xa9");
}

TEST_CASE("markup_text has no character that HTML or SVG interprets") {
  REQUIRE(markup_text("a <b> & \"c\"") == "a &lt;b&gt; &amp; &quot;c&quot;");
  REQUIRE(markup_text("\xff") == "\xef\xbf\xbd");
}

}  // namespace
}  // namespace tessera
