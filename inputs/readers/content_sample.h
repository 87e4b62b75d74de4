// SPDX-License-Identifier: Apache-2.0
// What hosts compare to find out whether they read the same data: files of equal names may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "inputs/readers/text_files.h"

namespace tessera {

// Of data with more bytes, a sample is compared: blocks at positions that `key` chooses.
inline constexpr int64_t kWholeBytes = int64_t{64} << 20;
inline constexpr int64_t kSampledBlocks = 64;
inline constexpr int64_t kSampledBlockBytes = 4096;

// "<bytes> bytes, crc …": of all bytes if `whole`, else of the sample. `read` fills a span from an
// offset, a multiple of kSampledBlockBytes.
std::string content_text(int64_t bytes, bool whole, uint64_t key,
                         const std::function<void(int64_t, std::span<std::byte>)>& read);

// Entries of an input's state (base_input.h) that must be equal on all hosts: for each file, or of
// many files for groups of them. Reads at most about 2 GB.
std::map<std::string, std::string> content_entries(const std::vector<TextFile>& files,
                                                   uint64_t seed);

}  // namespace tessera
