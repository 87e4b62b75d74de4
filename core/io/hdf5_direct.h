// SPDX-License-Identifier: Apache-2.0
// Fast random reads of a one-dimensional dataset by pread: for reads of a few kilobytes the lookup
// and lock of HDF5 cost more than the bytes. HDF5 reads each piece of the dataset once, checksum
// included; later reads go to the file offset that was found to hold the same bytes. Datasets whose
// bytes are not stored as they are in memory (compressed ones) are always read by HDF5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/io/hdf5.h"

namespace tessera {

class Hdf5DirectReader {
 public:
  // The dataset and its file must outlive the reader. `where` names it in errors.
  Hdf5DirectReader(const Hdf5Dataset& dataset, std::string where);
  ~Hdf5DirectReader();
  Hdf5DirectReader(Hdf5DirectReader&&) noexcept;

  // Reads the elements from `begin` on. Thread-safe. Error if the file was changed or truncated
  // since it was opened.
  void read(int64_t begin, std::span<std::byte> bytes) const;

  // The number of pieces with a known file offset, and of all: for tests and benchmarks.
  int64_t pieces_found() const;
  int64_t num_pieces() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
