// SPDX-License-Identifier: Apache-2.0
#include "tests/support/skip.h"

#include "tests/support/catch.h"

namespace tessera {
namespace {

int skipped = 0;

}  // namespace

void skip_test(const std::string& reason) {
  ++skipped;
  WARN("skipped: " + reason);
}

int tests_skipped() { return skipped; }

}  // namespace tessera
