// SPDX-License-Identifier: Apache-2.0
// Implements transfers of stores.h: ranges of objects, and several transfers at a time.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/io/storage/retry.h"
#include "core/io/storage/stores.h"

namespace tessera {
namespace {

constexpr int64_t kTransfersAtOnce = 8;

}  // namespace

HttpReply read_range(const std::function<HttpRequest(const HttpHeaders& range)>& make,
                     const std::string& what, int64_t offset, std::span<std::byte> bytes) {
  size_t done = 0, skipped = 0, unwanted = 0;
  const auto take = [&](int status, std::string_view piece) {
    if (status == 200) {  // A server without ranges sends the whole object.
      const size_t skip = std::min(unwanted - skipped, piece.size());
      skipped += skip;
      piece.remove_prefix(skip);
    }
    const size_t taken = std::min(piece.size(), bytes.size() - done);
    std::memcpy(bytes.data() + done, piece.data(), taken);
    done += taken;
    return done < bytes.size();
  };
  const auto next = [&] {
    unwanted = static_cast<size_t>(offset) + done;
    skipped = 0;
    HttpRequest request =
        make({{"range", fmt::format("bytes={}-{}", unwanted, offset + std::ssize(bytes) - 1)}});
    request.timeout_seconds = 0;
    request.stall_seconds = kStallSeconds;
    request.on_body = take;
    return request;
  };
  const HttpReply reply = send_with_retries(next, what);
  if (reply.status / 100 == 2 && done < bytes.size())
    fail("{}: ends at byte {}, expected more bytes", what, offset + static_cast<int64_t>(done));
  return reply;
}

void for_each_transfer(int64_t count, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(kTransfersAtOnce));
  for (int64_t i = 1; i < std::min(count, kTransfersAtOnce); ++i) try {
      threads.push_back(start_thread(run));
    } catch (const Error&) {
      break;  // With fewer threads.
    }
  run();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera
