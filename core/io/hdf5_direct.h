// SPDX-License-Identifier: Apache-2.0
// Reads a one-dimensional dataset past HDF5: a lookup and a lock for each few kilobytes would cost
// more than the bytes. Only where bytes lie in the file as they do in memory; elsewhere (compressed
// datasets) HDF5 reads. HDF5 stays the truth: it reads each piece of the dataset
// first, checksum and all, and only a place in the file that holds those very bytes is read later.
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
  // The dataset, and the file that it is of, must outlive it. `where` is for errors.
  Hdf5DirectReader(const Hdf5Dataset& dataset, std::string where);
  ~Hdf5DirectReader();
  Hdf5DirectReader(Hdf5DirectReader&&) noexcept;

  // The elements from `begin` on. Thread-safe. Error if the file was changed or cut short since it
  // was opened.
  void read(int64_t begin, std::span<std::byte> bytes) const;

  // Pieces that are read directly by now, and those that there are: for tests and benchmarks.
  int64_t pieces_found() const;
  int64_t num_pieces() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
