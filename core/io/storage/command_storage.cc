// SPDX-License-Identifier: Apache-2.0
// Any other store, by a command of the user's (docs/storage.md): COMMAND list PREFIX, read URL
// OFFSET SIZE, write URL FILE, remove URL.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "core/io/storage/retry.h"
#include "core/io/storage/storage.h"
#include "core/io/storage/stores.h"

namespace tessera {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("a pipe: {}", std::strerror(errno));
    out = FileDescriptor(ends[0]);
    in = FileDescriptor(ends[1]);
  }

  FileDescriptor out, in;
};

class CommandStorage final : public BaseStorage {
 public:
  explicit CommandStorage(std::string command) {
    std::istringstream words(command);
    for (std::string word; words >> word;) command_.push_back(word);
  }

  std::optional<ObjectInfo> find(const std::string& url) override {
    for (ObjectInfo& object : list(url))
      if (object.url == url) return std::move(object);
    return std::nullopt;
  }

  std::vector<ObjectInfo> list(const std::string& prefix) override {
    std::vector<ObjectInfo> objects;
    std::istringstream lines(run({"list", prefix}, kAnySize).output);
    for (std::string line; std::getline(lines, line);) {  // SIZE <tab> VERSION <tab> URL
      const size_t first = line.find('\t'), second = line.find('\t', first + 1);
      if (second == std::string::npos)
        fail("{} list {}: expected lines of a size, a version and a URL with tabs between, got {}",
             fmt::join(command_, " "), prefix, line);
      ObjectInfo object{line.substr(second + 1), object_size(line.substr(0, first)),
                        line.substr(first + 1, second - first - 1)};
      if (object.url.starts_with(prefix)) objects.push_back(std::move(object));
    }
    std::ranges::sort(objects, {}, &ObjectInfo::url);
    return objects;
  }

  void read(const ObjectInfo& object, int64_t offset, std::span<std::byte> bytes) override {
    if (bytes.empty()) return;
    const std::string got =
        run({"read", object.url, std::to_string(offset), std::to_string(bytes.size())},
            bytes.size())
            .output;
    if (got.size() != bytes.size())
      fail("{}: read gave {} bytes at byte {}, expected {}", object.url, got.size(), offset,
           bytes.size());
    std::memcpy(bytes.data(), got.data(), got.size());
  }

  WriteResult write(const std::string& url, std::string_view bytes, const WriteCondition& condition,
                    std::string* etag) override {
    if (condition.if_absent && find(url)) return WriteResult::kConditionFailed;
    if (!condition.if_match.empty()) {
      const auto found = find(url);
      if (!found || found->etag != condition.if_match) return WriteResult::kConditionFailed;
    }
    const std::filesystem::path file =
        temporary_beside(std::filesystem::temp_directory_path() / "tessera_object", "write");
    write_file_atomically(file, bytes);
    try {
      upload(url, file);
    } catch (...) {
      std::filesystem::remove(file);
      throw;
    }
    std::filesystem::remove(file);
    if (etag != nullptr) {
      const auto found = find(url);
      *etag = found ? found->etag : "";
    }
    return WriteResult::kWritten;
  }

  void upload(const std::string& url, const std::filesystem::path& file) override {
    run({"write", url, file.string()}, kAnySize);
  }
  void remove(const std::string& url) override { run({"remove", url}, kAnySize); }

 private:
  static constexpr size_t kAnySize = SIZE_MAX;
  struct Output {
    int status = 0;
    std::string output;
  };

  // Runs the command until it succeeds, as long as a failed one may be tried again.
  Output run(const std::vector<std::string>& arguments, size_t most) const {
    Output result;
    const auto attempt = [&](double*) {
      result = run_once(arguments, most);
      if (result.status == 0) return true;
      throw NoReply(fmt::format("{} {}: exit status {}", fmt::join(command_, " "),
                                fmt::join(arguments, " "), result.status));
    };
    retry(attempt, command_.empty() ? "" : command_[0], arguments[1]);
    return result;
  }

  Output run_once(const std::vector<std::string>& arguments, size_t most) const {
    std::vector<std::string> all = command_;
    all.insert(all.end(), arguments.begin(), arguments.end());
    Pipe pipe;
    ChildProcess child(all, pipe.in.get());
    pipe.in = FileDescriptor();
    Output result;
    std::array<char, 65536> piece;
    for (ssize_t got = 0; (got = ::read(pipe.out.get(), piece.data(), piece.size())) != 0;) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      result.output.append(piece.data(),
                           std::min(static_cast<size_t>(got), most - result.output.size()));
    }
    constexpr auto kPatience = std::chrono::hours(24);
    result.status = child.wait(std::chrono::steady_clock::now() + kPatience).value_or(-1);
    return result;
  }

  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<BaseStorage> command_storage(std::string command) {
  return std::make_unique<CommandStorage>(std::move(command));
}

}  // namespace tessera
