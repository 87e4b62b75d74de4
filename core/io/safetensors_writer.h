// SPDX-License-Identifier: Apache-2.0
// Writing Hugging Face's safetensors, a value after the other, into one file or several with an
// index. Equal values give equal bytes. Reading is safetensors.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/io/safetensors.h"

namespace tessera {

// What is to be written: a tensor's `begin` is of no account.
struct SafetensorsPlan {
  std::vector<SafetensorsTensor> tensors;  // In the order in which their values come.
  int64_t max_file_bytes = 5'000'000'000;  // A tensor larger than this has a file to itself.

  // The tensors of each file, [first, last).
  struct Range {
    size_t first = 0, last = 0;
  };
  std::vector<Range> files() const;
};

// Writes model.safetensors, or model-00001-of-00003.safetensors and so on with
// model.safetensors.index.json, into a directory that exists. Each file appears whole under its
// name, the index last.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& directory, SafetensorsPlan plan);
  ~SafetensorsWriter();  // Without `finish`, what is unfinished is removed.

  // The next values, of one tensor after the other, rounded to their dtype (a floating one). Error
  // for a finite value that the dtype does not reach.
  void write(std::span<const float> values);
  // Error if values are missing (CHECK) or cannot be written.
  void finish();
  std::vector<std::string> files() const;  // What it has written by now, in order.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
