// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/document_format.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "inputs/readers/compression.h"
#include "inputs/readers/foreign_format.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct Formats {
  std::mutex mutex;
  std::map<std::string_view, DocumentFormat> by_name;
};

// Constructed by the first registration, and never destroyed: readers refer to formats.
Formats& all_formats() {
  static auto* const formats = new Formats;
  return *formats;
}

// Returns a format for which `is_it` is true, or null.
template <typename Predicate>
const DocumentFormat* find_format(const Predicate& is_it) {
  const std::lock_guard lock(all_formats().mutex);
  for (const auto& [unused, format] : all_formats().by_name)
    if (is_it(format)) return &format;
  return nullptr;
}

// Loads the plugins in tessera/readers beside this library, once. One that cannot be loaded is an
// error: it was built, but a library that it needs is gone.
void load_reader_plugins() {
  static const bool kLoaded = [] {
    Dl_info ours{};
    if (::dladdr(reinterpret_cast<const void*>(&load_reader_plugins), &ours) == 0) return false;
    const fs::path folder =
        fs::weakly_canonical(ours.dli_fname).parent_path() / "tessera" / "readers";
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
      if (::dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
        fail("the reader cannot be loaded: {}; build Tessera again", ::dlerror());
    return true;
  }();
  static_cast<void>(kLoaded);
}

// Calls `find` again after loading plugins if it returns null.
template <typename Find>
const DocumentFormat* find_or_load(const Find& find) {
  const DocumentFormat* const found = find();
  if (found != nullptr) return found;
  load_reader_plugins();
  return find();
}

}  // namespace

DocumentFormatRegistrar::DocumentFormatRegistrar(const DocumentFormat& format) {
  const std::lock_guard lock(all_formats().mutex);
  all_formats().by_name.emplace(format.name, format);
}

const DocumentFormat& named_format(std::string_view name) {
  const DocumentFormat* const found = find_or_load([&] {
    return find_format([&](const DocumentFormat& format) { return format.name == name; });
  });
  if (found != nullptr) return *found;
  std::vector<std::string> names = {std::string(kAutoFormat)};
  for (const auto& [known, unused] : all_formats().by_name) names.emplace_back(known);
  fail("format={}: no such format; expected {}{}", name, fmt::join(names, ", "),
       did_you_mean(std::string(name), names));
}

const DocumentFormat& format_of_file(const fs::path& path, std::string_view head) {
  const auto by_magic = [&] {
    return find_format([&](const DocumentFormat& format) {
      return std::ranges::any_of(format.magics,
                                 [&](std::string_view magic) { return head.starts_with(magic); });
    });
  };
  // Plugins read what is foreign to us.
  if (const DocumentFormat* const found =
          foreign_format(head) ? find_or_load(by_magic) : by_magic())
    return *found;
  const DocumentFormat* const by_name =
      find_format([&](const DocumentFormat& format) { return has_name_of(format, path); });
  return by_name != nullptr ? *by_name : named_format("text");
}

bool has_name_of(const DocumentFormat& format, const fs::path& path) {
  const std::string extension = lower_extension(name_without_compression(path));
  return std::ranges::any_of(format.extensions, [&](std::string_view known) {
    return known.ends_with('*') ? extension.starts_with(known.substr(0, known.size() - 1))
                                : extension == known;
  });
}

const DocumentFormat& document_format(const fs::path& path, std::string_view name) {
  return name == kAutoFormat ? format_of_file(path, head_of_file(path)) : named_format(name);
}

std::string document_place(std::string_view shard, const DocumentFormat& format,
                           const ReadOptions& options, int64_t number) {
  if (format.is_text && format.has_records) return fmt::format("{}:{}", shard, number + 1);
  if (!format.has_records && options.separator.empty()) return std::string(shard);
  return fmt::format("{}: {} {}", shard, format.record, number + 1);
}

std::unique_ptr<DocumentReader> read_documents(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path,
                                               const ReadOptions& options,
                                               std::string_view format) {
  source = decompress_by_name(std::move(source), path);
  const std::string head = head_of(*source);
  const DocumentFormat& by_file = format_of_file(path, head);
  const DocumentFormat& chosen = format == kAutoFormat ? by_file : named_format(format);
  if (options.as_ids && !chosen.has_ids)
    fail("{}: is {}, which has no lists of ids that are read, expected TFRecord or lines of JSON",
         path.string(), chosen.title);
  if (chosen.is_text && !by_file.is_text)
    fail("{}: is {}, got format={}", path.string(), by_file.title, chosen.name);
  const auto foreign = foreign_format(head);
  if (chosen.is_text && foreign) fail("{}: {}", path.string(), describe(*foreign, path));
  return chosen.open(std::move(source), options);
}

std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options,
                                               std::string_view format) {
  return read_documents(open_file(path), path, options, format);
}

}  // namespace tessera
