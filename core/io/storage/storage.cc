// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/storage.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/io/storage/signature.h"
#include "core/io/storage/stores.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// TESSERA_STORAGE_HDFS for hdfs.
std::string command_variable(std::string_view scheme) {
  std::string name = "TESSERA_STORAGE_";
  for (const unsigned char c : scheme)
    name += std::isalnum(c) != 0 ? static_cast<char>(std::toupper(c)) : '_';
  return name;
}

std::unique_ptr<BaseStorage> make_storage(std::string_view scheme, std::string_view url) {
  const std::string variable = command_variable(scheme);
  if (const std::string command = environment(variable.c_str()); !command.empty())
    return command_storage(command);
  if (scheme == "s3") return s3_storage();
  if (scheme == "gs") return google_storage();
  if (scheme == "https" || scheme == "http") return web_storage();
  if (scheme == "hf") return hugging_face_storage();
  fail(
      "{}: no store has the scheme {}://; expected s3://, gs://, https://, http://, hf://, or a "
      "command in {} (docs/storage.md)",
      url, scheme, variable);
}

// Returns the names below a folder, of regular files.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      names.push_back(entry.path().lexically_relative(folder).generic_string());
  std::ranges::sort(names);
  return names;
}

std::string as_folder(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url + '/';
}

// An object's name below a folder. Error for one that would be written outside of it.
std::string name_below(const std::string& folder, const std::string& url) {
  const std::string name = url.substr(folder.size());
  for (const fs::path& part : fs::path(name))
    if (part == ".." || part == "/") fail("{}: its name has '..', so it is not copied", url);
  return name;
}

void download_objects(const std::string& folder, const std::vector<ObjectInfo>& objects,
                      const fs::path& to) {
  parallel_for(std::ssize(objects), kTransfersAtOnce, [&](int64_t i) {
    const ObjectInfo& object = objects[static_cast<size_t>(i)];
    const fs::path path = to / name_below(folder, object.url);
    if (object.url.ends_with('/')) return;  // The mark of an empty folder.
    fs::create_directories(path.parent_path());
    download_file(object, path);
  });
}

[[noreturn]] void fail_to_write(const std::string& url) {
  fail("{}: this store can only be read; expected a path of this machine, s3:// or gs://", url);
}

}  // namespace

WriteResult BaseStorage::write(const std::string& url, std::string_view, const WriteCondition&,
                               std::string*) {
  fail_to_write(url);
}
void BaseStorage::upload(const std::string& url, const fs::path&) { fail_to_write(url); }
void BaseStorage::remove(const std::string& url) { fail_to_write(url); }

std::string path_or_url(std::string_view path, std::string_view what) {
  if (!is_url(path)) return user_path(path, what);
  const ErrorContext where{std::string(what)};
  storage_of(path);  // Error for a scheme that is not known.
  return std::string(path.substr(0, path.find_last_not_of('/') + 1));
}

bool path_exists(const fs::path& path) {
  return is_url(path) ? storage_of(path.native()).find(path).has_value() : fs::exists(path);
}

BaseStorage& storage_of(std::string_view url) {
  static std::mutex mutex;
  static auto* const stores = new std::map<std::string, std::unique_ptr<BaseStorage>>;
  const std::string_view scheme = url_scheme(url);
  CHECK(!scheme.empty(), "'{}' is no URL", url);
  refuse_secret(url);
  const std::string key =
      fmt::format("{} {}", scheme, environment(command_variable(scheme).c_str()));
  const std::lock_guard lock(mutex);
  std::unique_ptr<BaseStorage>& store = (*stores)[key];
  if (!store) store = make_storage(scheme, url);
  return *store;
}

void write_object(const std::string& url, std::string_view bytes) {
  storage_of(url).write(url, bytes, {}, nullptr);
}

void download_file(const ObjectInfo& object, const fs::path& to) {
  constexpr int64_t kPiece = int64_t{16} << 20;
  BaseStorage& store = storage_of(object.url);
  NewFile file(to);
  std::vector<std::byte> bytes;
  for (int64_t begin = 0; begin < object.size; begin += kPiece) {
    bytes.resize(static_cast<size_t>(std::min(kPiece, object.size - begin)));
    store.read(object, begin, bytes);
    file.write(bytes);
  }
  file.finish();
}

void upload_folder(const fs::path& folder, const std::string& url) {
  const std::vector<std::string> names = names_in(folder);
  BaseStorage& store = storage_of(url);
  parallel_for(std::ssize(names), kTransfersAtOnce, [&](int64_t i) {
    const std::string& name = names[static_cast<size_t>(i)];
    store.upload(as_folder(url) + name, folder / name);
  });
}

fs::path cache_directory() {
  if (std::string given = environment("TESSERA_CACHE_DIR"); !given.empty()) return given;
  const std::string cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (cache.empty() && home.empty())
    fail("no folder for copies of remote files: set TESSERA_CACHE_DIR or HOME");
  return fs::path(cache.empty() ? home + "/.cache" : cache) / "tessera";
}

fs::path local_copy(const fs::path& path, const std::function<bool(std::string_view)>& wanted) {
  if (!is_url(path)) return path;
  std::string url = path.string();
  BaseStorage& store = storage_of(url);
  const std::optional<ObjectInfo> file = store.find(url);
  std::vector<ObjectInfo> objects;
  if (file) objects = {*file};
  const std::string folder = file ? url.substr(0, url.rfind('/') + 1) : as_folder(url);
  if (!file) objects = store.list(folder);
  if (wanted && !file)
    std::erase_if(objects, [&](const ObjectInfo& object) {
      return !wanted(std::string_view(object.url).substr(folder.size()));
    });
  if (objects.empty()) fail("{}: no such file or folder", url);

  std::string version;
  for (const ObjectInfo& object : objects)
    version += fmt::format("{}\n{}\n{}\n", object.url, object.etag, object.size);
  constexpr size_t kDigits = 40;
  const fs::path copy = cache_directory() / "copies" / sha256_hex(version).substr(0, kDigits) /
                        fs::path(folder.substr(0, folder.size() - 1)).filename();
  const fs::path result = file ? copy / fs::path(url).filename() : copy;
  if (fs::exists(copy)) return result;
  fs::create_directories(copy.parent_path());
  NewDirectory unfinished(copy);
  download_objects(folder, objects, unfinished.place());
  unfinished.finish();
  return result;
}

}  // namespace tessera
