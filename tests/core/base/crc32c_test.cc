// SPDX-License-Identifier: Apache-2.0
#include "core/base/crc32c.h"

#include <string_view>
#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

uint32_t of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  REQUIRE(of("") == 0);
  REQUIRE(of("123456789") == 0xe3069283u);
  REQUIRE(crc32c(std::vector<std::byte>(32, std::byte{0})) == 0x8a9136aau);
  REQUIRE(crc32c(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43u);
}

TEST_CASE("The CRC-32C instruction and table agree, in one call and in several") {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + 3 * i);
  for (size_t length = 0; length < 100; ++length) {
    const auto part = std::span(bytes).subspan(length % 9, length);
    REQUIRE(crc32c(part) == crc32c_portable(part));
  }
  const auto all = std::span(bytes);
  REQUIRE(crc32c(all.subspan(333), crc32c(all.first(333))) == crc32c(all));
}

TEST_CASE("CRC-32C of long inputs, computed as three interleaved runs, agrees with the table") {
  std::vector<std::byte> bytes(700000);
  uint32_t word = 1;
  for (std::byte& byte : bytes) {
    word = word * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(word >> 24);
  }
  constexpr size_t kThreeRuns = 3 * 32768;
  for (const size_t length :
       {kThreeRuns - 1, kThreeRuns, kThreeRuns + 1, 2 * kThreeRuns + 12345, size_t{699990}})
    for (const size_t begin : {0, 3}) {
      const auto part = std::span(bytes).subspan(begin, length);
      CAPTURE(length, begin);
      REQUIRE(crc32c(part, 77) == crc32c_portable(part, 77));
    }
}

}  // namespace
}  // namespace tessera
