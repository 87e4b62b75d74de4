// SPDX-License-Identifier: Apache-2.0
// Everything in this process that may wait for another process, so that a thread that watches can
// say what is waited for. It watches nothing by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace tessera {

class Waits {
 public:
  // "process 0 (host a) waits at 'step 12' for process 1 (host b)", if it has for `least` or
  // longer; else "".
  using Ask = std::function<std::string(std::chrono::milliseconds least)>;

  // What was added is asked while this lives.
  class [[nodiscard]] Entry {
   public:
    Entry() = default;
    Entry(Waits& waits, int64_t number) : waits_(&waits), number_(number) {}
    Entry(Entry&& other) noexcept : waits_(other.waits_), number_(other.number_) {
      other.waits_ = nullptr;
    }
    Entry& operator=(Entry&&) = delete;
    ~Entry();

   private:
    Waits* waits_ = nullptr;
    int64_t number_ = 0;
  };

  Entry add(Ask ask);
  // What the first says that waits so long; or "".
  std::string stalled(std::chrono::milliseconds least) const;

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  std::map<int64_t, Ask> asked_;
};

}  // namespace tessera
