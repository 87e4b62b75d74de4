// SPDX-License-Identifier: Apache-2.0
// Lines that values and ops cite.
#include "core/base/source_site.h"

#include <map>
#include <optional>
#include <string>

#include "tests/support/catch.h"

namespace tessera {
namespace {

struct Cites {
  Cites(int, std::source_location where = std::source_location::current())  // NOLINT: converts.
      : site(SourceSite::current(where)) {}
  SourceSite site;
};

TEST_CASE("a line of the C++ library is not cited") {
  const Cites here = 1;
  REQUIRE(here.site.text() == fmt::format("tests/core/base/source_site_test.cc:{}", __LINE__ - 1));
  const std::map<std::string, Cites> in_a_pair = {{"a", 1}};
  REQUIRE_FALSE(in_a_pair.at("a").site.known());
  const std::optional<Cites> in_an_optional = 1;
  REQUIRE_FALSE(in_an_optional->site.known());
}

}  // namespace
}  // namespace tessera
