// SPDX-License-Identifier: Apache-2.0
// Small files read whole, and files that must survive a crash: either complete or absent. Not a
// file abstraction; plain reading and writing elsewhere uses the standard library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// Error unless `path`, after symbolic links, is a regular file. To be called before a library opens
// the file: opening a FIFO blocks, and reading a device may never end.
void require_regular_file(const std::filesystem::path& path);

// The contents of a regular file. Error for anything else, and for more than `max_bytes`.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 30);

// Returns when the file is written and on disk. A regular file or a link of this name is replaced.
void write_file(const std::filesystem::path& path, std::string_view text);

// Replaces the file in one step: written beside it under a name of its own, synced, renamed.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Error if `path` exists and is no regular file: renaming a new file to it would replace a device,
// a FIFO or a folder.
void require_replaceable(const std::filesystem::path& path);

// Opens a file of a run's directory to read, write and append (O_APPEND), made if it is not there.
// Error for a symbolic link, another name of a file that is elsewhere (a hard link), and what is
// not a regular file: nothing outside the directory is written through it. The caller closes it.
int open_own_file(const std::filesystem::path& path);

// Returns when the bytes of a file, or the names in a directory, are on disk.
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& path);

// Takes the name `to`, in one step; what bore it before is then `from`, or gone if `to` was free.
void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to);

// A name beside `path` that no other process uses: "<dir>/.<name>.<tag>.<pid>".
std::filesystem::path temporary_beside(const std::filesystem::path& path, std::string_view tag);

// Removes what bears such a name: left by killed processes, if the caller is the one that may write
// in this directory.
void remove_temporaries(const std::filesystem::path& directory);

}  // namespace tessera
