// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/retry.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/io/environment.h"
#include "core/io/file.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double patience_seconds() {
  constexpr double kDefault = 300.0;
  return environment_number("TESSERA_STORAGE_PATIENCE", kDefault, "seconds");
}

// The hosts that have answered this process.
class KnownHosts {
 public:
  void add(const std::string& host) {
    const std::lock_guard lock(mutex_);
    hosts_.insert(host);
  }
  bool has(const std::string& host) {
    const std::lock_guard lock(mutex_);
    return hosts_.contains(host);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> hosts_;
};

KnownHosts& known_hosts() {
  static auto* const hosts = new KnownHosts;  // Threads may outlive static objects.
  return *hosts;
}

// Full jitter: many hosts that failed together must not come back together.
double delay_seconds(int attempt, double patience) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr double kLongest = 20.0;
  const double most = std::min(kLongest, patience / 1000.0 * static_cast<double>(1 << attempt));
  return std::uniform_real_distribution<double>(most / 4, most)(random);
}

bool is_transient(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

double retry_after_of(const HttpReply& reply) {
  return std::strtod(reply.header("retry-after").c_str(), nullptr);  // A date counts as none.
}

}  // namespace

bool retry(const std::function<bool(double* retry_after)>& attempt, const std::string& host,
           const std::string& what) {
  constexpr double kUnknownHost = 10.0, kTold = 10.0;
  constexpr int kMostDoublings = 12;
  const double patience = patience_seconds();
  const auto begin = Clock::now();
  bool told = false;
  for (int i = 0;; ++i) {
    double asked = 0.0;
    std::string problem = "the store is busy";
    const auto elapsed = [&] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    try {
      const bool done = attempt(&asked);
      known_hosts().add(host);
      if (done) return true;
    } catch (const NoReply& error) {
      problem = error.what();
    }
    const double most = known_hosts().has(host) ? patience : std::min(patience, kUnknownHost);
    const double delay = std::max(asked, delay_seconds(std::min(i, kMostDoublings), patience));
    if (elapsed() + delay > most) {
      if (problem == "the store is busy") return false;
      throw NoAccess(fmt::format("{}: {}; tried for {:.0f} s", what, problem, elapsed()));
    }
    if (!told && elapsed() > kTold) {
      fmt::print(stderr, "note: {}: {}; trying again for {:.0f} s\n", what, problem, most);
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  }
}

HttpReply send_with_retries(const std::function<HttpRequest()>& make, const std::string& what) {
  HttpReply reply;
  HttpRequest request = make();
  const std::string host = parse_url(request.url).host;
  bool is_first = true;
  retry(
      [&](double* retry_after) {
        if (!std::exchange(is_first, false)) request = make();
        reply = http_request(request);
        *retry_after = retry_after_of(reply);
        return !is_transient(reply.status);
      },
      host, what);
  return reply;
}

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

}  // namespace tessera
