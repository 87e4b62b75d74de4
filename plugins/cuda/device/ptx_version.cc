// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/ptx_version.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/base/error.h"

namespace tessera::cuda {
namespace {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::string_view kDirective = ".version ", kOldest = "8.4";

}  // namespace

std::string with_oldest_version(std::string ptx) {
  const size_t begin = ptx.find(kDirective);
  CHECK(begin != ptx.npos, "PTX without a version");
  const size_t number = begin + kDirective.size();
  return ptx.replace(number, ptx.find('\n', number) - number, kOldest);
}

std::string oldest_ptx(const void* image) {
  struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
  } header;
  std::memcpy(&header, image, sizeof(header));
  if (header.magic != kFatbinMagic) return "";
  const std::string_view all(static_cast<const char*>(image), header.header_bytes + header.bytes);
  // Line information in machine code repeats the text, with other ends of lines.
  const size_t begin = all.find(fmt::format("\n{}", kDirective));
  if (begin == all.npos) return "";
  return with_oldest_version(std::string(all.substr(begin, all.find('\0', begin) - begin)));
}

}  // namespace tessera::cuda
