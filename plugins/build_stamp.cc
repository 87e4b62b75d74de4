// SPDX-License-Identifier: Apache-2.0
#include "plugins/build_stamp.h"

#include <elf.h>

#include <cstring>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tessera_stamp.h"

namespace tessera {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_NONE;
#endif

template <typename T>
std::optional<T> read_at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Checks that every segment is in the file: mapping a truncated library kills the process with
// SIGBUS.
bool is_whole(std::string_view bytes, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; ++i) {
    const auto segment =
        read_at<Elf64_Phdr>(bytes, header.e_phoff + static_cast<uint64_t>(i) * sizeof(Elf64_Phdr));
    if (!segment) return false;
    if (segment->p_offset > bytes.size() || bytes.size() - segment->p_offset < segment->p_filesz)
      return false;
  }
  const uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
  return header.e_phnum > 0 && header.e_shoff <= bytes.size() &&
         bytes.size() - header.e_shoff >= sections;
}

std::optional<std::string> find_stamp(std::string_view bytes) {
  const std::string_view marker = kStampMarker;
  const size_t at = bytes.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = bytes.substr(at + marker.size(), 256);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(rest.substr(0, end));
}

}  // namespace

std::string_view build_stamp() {
  return std::string_view(kPluginStamp).substr(kStampMarker.size());
}

std::optional<std::string> stamp_in_file(const std::filesystem::path& file) {
  return find_stamp(read_file(file));
}

void check_plugin_file(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
    fail("{}: not a shared library", file.string());
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachine ||
      header->e_type != ET_DYN)
    fail("{}: not a shared library for this kind of machine", file.string());
  if (!is_whole(bytes, *header)) fail("{}: the file is cut short; build it again", file.string());
  const auto stamp = find_stamp(bytes);
  if (!stamp)
    fail("{}: not a Tessera plugin (it has no build stamp; make it with tessera_plugin())",
         file.string());
  if (*stamp != build_stamp())
    fail("{}: plugin of another build: it is of Tessera {}, this program of {}; build it again",
         file.string(), *stamp, build_stamp());
}

}  // namespace tessera
