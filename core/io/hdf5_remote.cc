// SPDX-License-Identifier: Apache-2.0
// A file driver of HDF5 that reads objects by their URLs, through ByteFile.
#include <algorithm>
#include <span>

#include "core/io/file.h"
#include "core/io/hdf5_internal.h"

namespace tessera::hdf5_internal {
namespace {

// HDF5 knows a file by its first member.
struct RemoteHdf5 {
  H5FD_t base{};
  ByteFile file;
  haddr_t end = 0;  // The end of what HDF5 has allocated: its "eoa".
};

RemoteHdf5& remote(const H5FD_t* file) {
  return *reinterpret_cast<RemoteHdf5*>(const_cast<H5FD_t*>(file));
}

H5FD_t* open_remote(const char* name, unsigned flags, hid_t, haddr_t) {
  if ((flags & H5F_ACC_RDWR) != 0) return nullptr;
  try {
    return &(new RemoteHdf5{.file = ByteFile::open(name)})->base;
  } catch (const std::exception&) {  // Hdf5File::open has opened it before, and would have thrown.
    return nullptr;
  }
}

// Bytes beyond the end are zeros, as in the other drivers.
herr_t read_remote(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  const ByteFile& object = remote(file).file;
  const auto end = static_cast<haddr_t>(object.size());
  const size_t stored = std::min<haddr_t>(size, end - std::min(address, end));
  const std::span bytes(static_cast<std::byte*>(buffer), size);
  std::ranges::fill(bytes.subspan(stored), std::byte{0});
  try {
    object.read_at(static_cast<int64_t>(address), bytes.first(stored));
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

hid_t remote_driver() {
  static const hid_t kDriver = [] {
    static H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(600);  // One of those for private drivers.
#endif
    driver.name = "tessera_remote";
    driver.maxaddr = HADDR_MAX / 2;
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.open = open_remote;
    driver.close = [](H5FD_t* file) -> herr_t { return delete &remote(file), 0; };
    driver.query = [](const H5FD_t*, unsigned long* flags) -> herr_t { return *flags = 0, 0; };
    driver.get_eoa = [](const H5FD_t* file, H5FD_mem_t) { return remote(file).end; };
    driver.set_eoa = [](H5FD_t* file, H5FD_mem_t, haddr_t end) -> herr_t {
      return remote(file).end = end, 0;
    };
    driver.get_eof = [](const H5FD_t* file, H5FD_mem_t) {
      return static_cast<haddr_t>(remote(file).file.size());
    };
    driver.read = read_remote;
    driver.write = [](H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) -> herr_t {
      return -1;
    };
    for (auto& type : driver.fl_map) type = H5FD_MEM_DEFAULT;
    return H5FDregister(&driver);
  }();
  return kDriver;
}

}  // namespace

Hdf5Handle remote_access_list() {
  Hdf5Handle list(H5Pcreate(H5P_FILE_ACCESS));
  checked(H5Pset_driver(list.id(), remote_driver(), nullptr), "choose the driver", "HDF5");
  return list;
}

}  // namespace tessera::hdf5_internal
