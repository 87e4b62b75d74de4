// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/compression.h"

#include <map>

namespace tessera {
namespace {

// By name. Constructed by the first registration.
std::map<std::string_view, Compression>& registered_compressions() {
  static std::map<std::string_view, Compression> registered;
  return registered;
}

}  // namespace

CompressionRegistrar::CompressionRegistrar(const Compression& compression) {
  registered_compressions().emplace(compression.name, compression);
}

const Compression* compression_by_name(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  for (const auto& [unused, compression] : registered_compressions())
    if (compression.extension == extension) return &compression;
  return nullptr;
}

const Compression* compression_by_magic(std::string_view head) {
  for (const auto& [unused, it] : registered_compressions())
    if (head.size() >= it.magic_offset && head.substr(it.magic_offset).starts_with(it.magic))
      return &it;
  return nullptr;
}

std::filesystem::path name_without_compression(const std::filesystem::path& path) {
  return compression_by_name(path) == nullptr ? path : path.stem();
}

}  // namespace tessera
