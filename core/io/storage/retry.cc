// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/retry.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/base/seconds.h"
#include "core/io/environment.h"
#include "core/io/file.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = {};
constexpr double kStallSeconds = 30.0, kShortPatience = 10.0;

bool is_asked_to_stop() { return stop_asked_at.load() != kNever; }

double patience_seconds() {
  constexpr double kDefault = 300.0;
  return environment_number("TESSERA_STORAGE_PATIENCE", kDefault, "seconds");
}

// Notes the end of an attempt. Returns for how many seconds from `begin` its host is tried.
double most_seconds(const std::string& host, bool has_answered, bool has_succeeded,
                    Clock::time_point begin, double patience) {
  static std::mutex mutex;
  // Since when those that have answered fail. Threads may outlive static objects.
  static auto* const hosts = new std::map<std::string, Clock::time_point>;
  const std::lock_guard lock(mutex);
  if (!has_answered && !hosts->contains(host)) return std::min(patience, kShortPatience);
  Clock::time_point& failing = (*hosts)[host];
  if (has_succeeded || failing == kNever) failing = has_succeeded ? kNever : begin;
  if (!is_asked_to_stop()) return patience;
  const std::chrono::duration<double> since = std::max(stop_asked_at.load(), failing) - begin;
  return std::min(patience, since.count() + kShortPatience);
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

std::atomic<Clock::time_point> stop_asked_at = kNever;

bool retry(const std::function<bool(double* retry_after)>& attempt, const std::string& host,
           const std::string& what) {
  constexpr int kMostDoublings = 12;
  const double patience = patience_seconds();
  const auto begin = Clock::now();
  bool told = false;
  for (int i = 0;; ++i) {
    const bool stops = is_asked_to_stop();
    double asked = 0.0;
    bool done = false;
    std::string problem;
    try {
      done = attempt(&asked);
    } catch (const NoReply& error) {
      problem = error.what();
    }
    const double most = most_seconds(host, problem.empty(), done, begin, patience);
    if (done) return true;
    if (stops) asked = std::min(asked, 1.0);
    const double delay = std::max(asked, delay_seconds(std::min(i, kMostDoublings), patience));
    const double elapsed = seconds_since(begin);
    if (elapsed + delay > most && problem.empty()) return false;
    if (elapsed + delay > most)
      throw NoAccess(fmt::format("{}: {}; tried for {:.0f} s", what, problem, elapsed));
    if (!told && elapsed > kShortPatience) {
      fmt::print(stderr, "note: {}: {}; trying again for {:.0f} s\n", what,
                 problem.empty() ? "the store is busy" : problem, most);
      told = true;
    }
    for (const auto end = in_seconds(delay); Clock::now() < end && is_asked_to_stop() == stops;)
      std::this_thread::sleep_until(std::min(end, in_seconds(0.1)));
    if (is_asked_to_stop() != stops) i = 0;
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
        request.timeout_seconds = 0;
        request.is_cancelled = [](double still) {
          return still > (is_asked_to_stop() ? kShortPatience : kStallSeconds);
        };
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
    request.on_body = take;
    return request;
  };
  const HttpReply reply = send_with_retries(next, what);
  if (reply.status / 100 == 2 && done < bytes.size())
    fail("{}: ends at byte {}, expected more bytes", what, offset + static_cast<int64_t>(done));
  return reply;
}

}  // namespace tessera
