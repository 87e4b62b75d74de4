// SPDX-License-Identifier: Apache-2.0
// Helpers of hdf5_file.cc, hdf5_dataset.cc (which defines most of them), hdf5_direct.cc and
// hdf5_remote.cc: identifiers, errors and element types of the HDF5 library. Private to them; the
// only header that includes <hdf5.h>.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hdf5.h>

#include "core/io/hdf5.h"

#ifndef H5_HAVE_THREADSAFE
#error "HDF5 must be built thread-safe: checkpoints are written and input is read on threads"
#endif

namespace tessera::hdf5_internal {

static_assert(sizeof(hid_t) == sizeof(int64_t));

// Stops this thread from printing its error stack. Call it before any HDF5 function.
void silence();
// Returns the innermost reason on the error stack of this thread.
std::string reason();
// Returns the identifier or status; Error "<where>: cannot <what>: <reason>" if it is negative.
hid_t checked(hid_t id, std::string_view what, std::string_view where);
Hdf5Handle owned(hid_t id, std::string_view what, std::string_view where);

// Makes a property list for creating files, groups or datasets without timestamps, so that equal
// content gives equal files.
Hdf5Handle creation_list(hid_t list_class);

// Makes an access list for opening an object by its URL, to read.
Hdf5Handle remote_access_list();

hid_t type_id(StoredType type);  // Borrowed.
StoredType read_type(hid_t id, std::string_view where);
Hdf5Handle text_type(size_t bytes);

std::vector<hsize_t> sizes(const std::vector<int64_t>& shape);
Hdf5Handle dataspace(const std::vector<int64_t>& shape);
// Selects `region` in a dataspace; everything if it has no axes.
void select(hid_t space, const Region& region, std::string_view where);
std::vector<int64_t> extent(hid_t space);

}  // namespace tessera::hdf5_internal
