// SPDX-License-Identifier: Apache-2.0
// What the files of the HDF5 wrapper share: identifiers, errors, element types. Private to them,
// and the only header that includes HDF5.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hdf5.h>

#include "core/io/hdf5.h"

#ifndef H5_HAVE_THREADSAFE
#error "Checkpoints are written and input is read on threads of their own: HDF5 must be thread-safe"
#endif

namespace tessera::hdf5_internal {

static_assert(sizeof(hid_t) == sizeof(int64_t));

// To be called before HDF5 is: its error stack, which is thread-local, is not to be printed.
void silence();
// The innermost reason on this thread's error stack.
std::string reason();
// The identifier or result; Error "<where>: cannot <what>: <reason>" if it is negative.
hid_t checked(hid_t id, std::string_view what, std::string_view where);
Hdf5Handle owned(hid_t id, std::string_view what, std::string_view where);

hid_t type_id(StoredType type);  // Borrowed.
StoredType read_type(hid_t id, std::string_view where);
Hdf5Handle text_type(size_t bytes);

int64_t product(const std::vector<int64_t>& shape);
std::vector<hsize_t> sizes(const std::vector<int64_t>& shape);
Hdf5Handle dataspace(const std::vector<int64_t>& shape);
std::vector<int64_t> extent(hid_t space);

}  // namespace tessera::hdf5_internal
