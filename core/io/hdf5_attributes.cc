// SPDX-License-Identifier: Apache-2.0
// Attributes.
#include <algorithm>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "core/io/hdf5_internal.h"

namespace tessera {

using namespace hdf5_internal;

namespace {

struct Attribute {
  Hdf5Handle object;
  Hdf5Handle attribute;
  std::string where;
};

void write_attribute(hid_t file, const std::string& file_name, const std::string& object,
                     const std::string& name, hid_t type, hid_t space, const void* value) {
  silence();
  const std::string where = fmt::format("{}:{}@{}", file_name, object, name);
  const Hdf5Handle owner = owned(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open", where);
  const Hdf5Handle attribute =
      owned(H5Acreate2(owner.id(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
            "create the attribute", where);
  checked(H5Awrite(attribute.id(), type, value), "write the attribute", where);
}

Attribute open_attribute(hid_t file, const std::string& file_name, const std::string& object,
                         const std::string& name) {
  silence();
  Attribute result;
  result.where = fmt::format("{}:{}", file_name, object);
  result.object = owned(H5Oopen(file, object.c_str(), H5P_DEFAULT), "open", result.where);
  if (H5Aexists(result.object.id(), name.c_str()) <= 0)
    fail("{}: the attribute '{}' is missing", result.where, name);
  result.where += "@" + name;
  result.attribute =
      owned(H5Aopen(result.object.id(), name.c_str(), H5P_DEFAULT), "open", result.where);
  return result;
}

// Converts from whatever number the file holds, scalar or array.
template <typename T>
std::vector<T> read_numbers(const Attribute& attribute, hid_t memory_type) {
  const Hdf5Handle type(H5Aget_type(attribute.attribute.id()));
  const H5T_class_t kind = H5Tget_class(type.id());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT)
    fail("{}: expected a number, got HDF5 type class {}", attribute.where, static_cast<int>(kind));
  const Hdf5Handle space(H5Aget_space(attribute.attribute.id()));
  std::vector<T> values(std::max<hssize_t>(0, H5Sget_simple_extent_npoints(space.id())));
  if (!values.empty())
    checked(H5Aread(attribute.attribute.id(), memory_type, values.data()), "read", attribute.where);
  return values;
}

template <typename T>
T read_number(const Attribute& attribute, hid_t memory_type) {
  const auto values = read_numbers<T>(attribute, memory_type);
  if (values.size() != 1) fail("{}: expected one number, got {}", attribute.where, values.size());
  return values[0];
}

}  // namespace

bool Hdf5File::has_attribute(const std::string& object, const std::string& name) const {
  silence();
  return H5Aexists_by_name(handle_.id(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& object) const {
  silence();
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  checked(H5Aiterate_by_name(handle_.id(), object.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
                             visit, &names, H5P_DEFAULT),
          "list the attributes", path_.string());
  return names;
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             std::string_view text) {
  const std::string padded = text.empty() ? std::string(1, '\0') : std::string(text);
  const Hdf5Handle type = text_type(padded.size());
  write_attribute(handle_.id(), path_.string(), object, name, type.id(), dataspace({}).id(),
                  padded.data());
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, int64_t value) {
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, dataspace({}).id(),
                  &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, double value) {
  write_attribute(handle_.id(), path_.string(), object, name, H5T_IEEE_F64LE, dataspace({}).id(),
                  &value);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name,
                             const std::vector<int64_t>& values) {
  const Hdf5Handle space = dataspace({static_cast<int64_t>(values.size())});
  const int64_t none = 0;  // HDF5 wants an address, even of nothing.
  write_attribute(handle_.id(), path_.string(), object, name, H5T_STD_I64LE, space.id(),
                  values.empty() ? &none : values.data());
}

std::string Hdf5File::text_attribute(const std::string& object, const std::string& name) const {
  const Attribute attribute = open_attribute(handle_.id(), path_.string(), object, name);
  const Hdf5Handle type(H5Aget_type(attribute.attribute.id()));
  if (H5Tget_class(type.id()) != H5T_STRING) fail("{}: expected a text", attribute.where);
  if (H5Tis_variable_str(type.id()) > 0) {  // As h5py writes strings.
    char* text = nullptr;
    checked(H5Aread(attribute.attribute.id(), type.id(), &text), "read", attribute.where);
    const std::string result = text == nullptr ? "" : text;
    H5free_memory(text);
    return result;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  checked(H5Aread(attribute.attribute.id(), type.id(), text.data()), "read", attribute.where);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

int64_t Hdf5File::integer_attribute(const std::string& object, const std::string& name) const {
  return read_number<int64_t>(open_attribute(handle_.id(), path_.string(), object, name),
                              H5T_NATIVE_INT64);
}

double Hdf5File::float_attribute(const std::string& object, const std::string& name) const {
  return read_number<double>(open_attribute(handle_.id(), path_.string(), object, name),
                             H5T_NATIVE_DOUBLE);
}

std::vector<int64_t> Hdf5File::integers_attribute(const std::string& object,
                                                  const std::string& name) const {
  return read_numbers<int64_t>(open_attribute(handle_.id(), path_.string(), object, name),
                               H5T_NATIVE_INT64);
}

}  // namespace tessera
