// SPDX-License-Identifier: Apache-2.0
// Buckets by Amazon's S3 protocol: AWS and compatible services (s3://), and Google's (gs://), whose
// names of headers differ and whose objects have generations in place of ETags.
#include <curl/curl.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "core/io/file.h"
#include "core/io/storage/credentials.h"
#include "core/io/storage/retry.h"
#include "core/io/storage/storage.h"
#include "core/io/storage/stores.h"

namespace tessera {
namespace {

// The names of one service.
struct BucketDialect {
  SignatureDialect signature;
  BucketService (*service)();
  std::string_view own_host;                     // {} is the region.
  std::string_view if_absent, absent_value;      // Header of a write that must create the object.
  std::string_view if_match;                     // Header of a request for one version of it.
  std::string_view version_header, version_tag;  // The version in replies and in lists.
};

constexpr BucketDialect kS3 = {kAwsSignature,   &s3_service, "s3.{}.amazonaws.com",
                               "if-none-match", "*",         "if-match",
                               "etag",          "ETag"};
constexpr BucketDialect kGoogle = {kGoogleSignature,
                                   &google_service,
                                   "storage.googleapis.com",
                                   "x-goog-if-generation-match",
                                   "0",
                                   "x-goog-if-generation-match",
                                   "x-goog-generation",
                                   "Generation"};

struct BucketKey {
  std::string bucket, key;
};

BucketKey bucket_key(const std::string& url) {
  const size_t begin = url.find("://") + 3, slash = std::min(url.find('/', begin), url.size());
  BucketKey place{url.substr(begin, slash - begin), url.substr(std::min(slash + 1, url.size()))};
  if (place.bucket.empty()) fail("{}: has no bucket; expected {}bucket/key", url, url.substr(0, 5));
  return place;
}

// The replies of object stores: XML without attributes or mixed content.
constexpr std::array<std::pair<std::string_view, char>, 5> kReferences = {
    {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};

// Replaces the reference at the beginning of `text`; returns its length, 0 if it is none.
size_t replace_reference(std::string_view text, std::string* out) {
  for (const auto& [reference, character] : kReferences) {
    if (!text.starts_with(reference)) continue;
    *out += character;
    return reference.size();
  }
  const size_t end = text.find(';');
  if (!text.starts_with("&#") || end == std::string_view::npos) return 0;
  const std::string digits(text.substr(2, end - 2));
  const bool is_hex = digits.starts_with('x');
  const long code = std::strtol(digits.c_str() + (is_hex ? 1 : 0), nullptr, is_hex ? 16 : 10);
  if (code <= 0 || code > 0x7f) return 0;  // Others come as UTF-8.
  *out += static_cast<char>(code);
  return end + 1;
}

// Returns the texts between <tag> and </tag>, in order, as they are written.
std::vector<std::string_view> xml_elements(std::string_view xml, std::string_view tag) {
  const std::string open = fmt::format("<{}>", tag), close = fmt::format("</{}>", tag);
  std::vector<std::string_view> elements;
  for (size_t at = 0;;) {
    const size_t begin = xml.find(open, at);
    const size_t end = begin == std::string_view::npos ? begin : xml.find(close, begin);
    if (end == std::string_view::npos) return elements;
    elements.push_back(xml.substr(begin + open.size(), end - begin - open.size()));
    at = end + close.size();
  }
}

// Returns the text of the first element with this tag, with entity references (&amp;, &#38;)
// decoded; "" without such an element.
std::string xml_text(std::string_view xml, std::string_view tag) {
  const std::vector<std::string_view> elements = xml_elements(xml, tag);
  std::string text;
  for (std::string_view rest = elements.empty() ? "" : elements[0]; !rest.empty();) {
    const size_t used = rest[0] == '&' ? replace_reference(rest, &text) : 0;
    if (used == 0) text += rest[0];
    rest.remove_prefix(used == 0 ? 1 : used);
  }
  return text;
}

// Returns by how many minutes this machine's clock is ahead of the server's.
double clock_error_minutes(const HttpReply& reply) {
  const std::time_t theirs = ::curl_getdate(reply.header("date").c_str(), nullptr);
  return theirs < 0 ? 0.0 : static_cast<double>(std::time(nullptr) - theirs) / 60.0;
}

// Returns what a refusal means, and what to do.
std::string reason_of(const HttpReply& reply) {
  constexpr double kMostMinutes = 14.5;  // Services accept 15.
  const std::string code = xml_text(reply.body, "Code"), said = xml_text(reply.body, "Message");
  const std::string region = reply.header("x-amz-bucket-region");
  if (const double minutes = clock_error_minutes(reply);
      code == "RequestTimeTooSkewed" || (reply.status == 403 && std::abs(minutes) > kMostMinutes))
    return fmt::format(
        "the clock of this machine is {:.0f} minutes {} the server's, so that signatures are "
        "refused; set the clock",
        std::abs(minutes), minutes > 0 ? "ahead of" : "behind");
  if (reply.status == 301 || reply.status == 307)
    return region.empty()
               ? fmt::format("the server redirects to {}, where no credentials are sent",
                             reply.header("location"))
               : fmt::format("the bucket is in another region; set AWS_REGION={}", region);
  if (code == "ExpiredToken" || code == "InvalidToken")
    return "the session token is not valid or has expired; renew the credentials";
  if (reply.status == 507 || code == "QuotaExceeded") return "the bucket is full";
  if (code == "NoSuchBucket") return "no such bucket";
  const std::string text = code.empty() ? "" : fmt::format(" ({}: {})", code, said);
  if (reply.status == 401 || reply.status == 403)
    return fmt::format("access denied{}; check the credentials and the rights on the bucket", text);
  return fmt::format("status {}{}", reply.status, text);
}

[[noreturn]] void refuse(const std::string& url, const HttpReply& reply) {
  const std::string text = fmt::format("{}: {}", url, reason_of(reply));
  if (reply.status == 404 || reply.status == 416) throw Error(text);
  throw NoAccess(text);
}

std::string unquoted(std::string etag) {
  std::erase(etag, '"');
  return etag;
}

class BucketStorage final : public BaseStorage {
 public:
  explicit BucketStorage(const BucketDialect& dialect) : dialect_(dialect) {}

  std::optional<ObjectInfo> find(const std::string& url) override {
    if (bucket_key(url).key.empty() || url.ends_with('/')) return std::nullopt;
    const HttpReply reply = send(url, {.method = "HEAD"});
    if (reply.status == 404) return std::nullopt;
    if (reply.status != 200) refuse(url, reply);
    return ObjectInfo{url, object_size(reply.header("content-length")), version(reply)};
  }

  std::vector<ObjectInfo> list(const std::string& prefix) override;
  void read(const ObjectInfo& object, int64_t offset, std::span<std::byte> bytes) override;
  WriteResult write(const std::string& url, std::string_view bytes, const WriteCondition& condition,
                    std::string* etag) override;
  void upload(const std::string& url, const std::filesystem::path& file) override;

  void remove(const std::string& url) override {
    const HttpReply reply = send(url, {.method = "DELETE"});
    if (reply.status / 100 != 2 && reply.status != 404) refuse(url, reply);
  }

 private:
  struct Call {
    std::string method = "GET";
    std::string query = "";
    HttpHeaders headers = {};
    std::string body = "";
    bool of_bucket = false;  // Not of the object.
  };

  std::string version(const HttpReply& reply) const {
    return unquoted(reply.header(dialect_.version_header));
  }
  HttpHeaders match_of(const std::string& version) const {
    if (version.empty()) return {};
    const std::string_view quote = dialect_.if_match == "if-match" ? "\"" : "";
    return {{std::string(dialect_.if_match), fmt::format("{0}{1}{0}", quote, version)}};
  }

  HttpRequest request(const std::string& url, const Call& call) const {
    const BucketService service = dialect_.service();
    const BucketKey place = bucket_key(url);
    const std::string key = call.of_bucket ? "" : fmt::format("/{}", url_escaped(place.key, "/"));
    const std::string host = fmt::format(fmt::runtime(dialect_.own_host), service.region);
    // A certificate for *.s3.amazonaws.com does not cover a name with more dots.
    const bool in_host = service.endpoint.empty() && &dialect_ == &kS3 &&
                         place.bucket.find('.') == std::string::npos;
    HttpRequest request{.method = call.method, .headers = call.headers, .body = call.body};
    request.url = in_host
                      ? fmt::format("https://{}.{}{}", place.bucket, host, key)
                      : fmt::format("{}/{}{}",
                                    service.endpoint.empty() ? "https://" + host : service.endpoint,
                                    url_escaped(place.bucket), key);
    if (in_host && key.empty()) request.url += '/';
    if (!call.query.empty()) request.url += '?' + call.query;
    sign(request, service.credentials, service.region, std::time(nullptr), dialect_.signature);
    return request;
  }

  HttpReply send(const std::string& url, const Call& call) const {
    return send_with_retries([&] { return request(url, call); }, url);
  }

  void upload_parts(const std::string& url, const ByteFile& file, const std::string& id);
  void complete(const std::string& url, const std::string& id, int64_t size,
                const std::vector<std::string>& etags);

  const BucketDialect& dialect_;
};

std::vector<ObjectInfo> BucketStorage::list(const std::string& prefix) {
  const BucketKey place = bucket_key(prefix);
  const std::string root = prefix.substr(0, prefix.find("://") + 3) + place.bucket + '/';
  const std::string query =
      fmt::format("encoding-type=url&list-type=2&max-keys=1000&prefix={}", url_escaped(place.key));
  std::vector<ObjectInfo> objects;
  for (std::string next;;) {
    const std::string more =
        next.empty() ? "" : fmt::format("&continuation-token={}", url_escaped(next));
    const HttpReply reply = send(prefix, {.query = query + more, .of_bucket = true});
    if (reply.status != 200) refuse(prefix, reply);
    const bool is_escaped = xml_text(reply.body, "EncodingType") == "url";
    for (const std::string_view entry : xml_elements(reply.body, "Contents")) {
      const std::string key = xml_text(entry, "Key");
      objects.push_back({root + (is_escaped ? url_unescaped(key) : key),
                         object_size(xml_text(entry, "Size")),
                         unquoted(xml_text(entry, dialect_.version_tag))});
    }
    next = xml_text(reply.body, "NextContinuationToken");
    if (next.empty() || xml_text(reply.body, "IsTruncated") != "true") break;
  }
  std::ranges::sort(objects, {}, &ObjectInfo::url);
  return objects;
}

void BucketStorage::read(const ObjectInfo& object, int64_t offset, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  const auto make = [&](const HttpHeaders& range) {
    Call call{.headers = match_of(object.etag)};
    call.headers.insert(call.headers.end(), range.begin(), range.end());
    return request(object.url, call);
  };
  const HttpReply reply = read_range(make, object.url, offset, bytes);
  if (reply.status == 412 || reply.status == 404)
    fail("{}: {} since it was opened", object.url,
         reply.status == 404 ? "was removed" : "has changed");
  if (reply.status / 100 != 2) refuse(object.url, reply);
}

WriteResult BucketStorage::write(const std::string& url, std::string_view bytes,
                                 const WriteCondition& condition, std::string* etag) {
  Call call{.method = "PUT", .headers = match_of(condition.if_match), .body = std::string(bytes)};
  if (condition.if_absent) call.headers.emplace_back(dialect_.if_absent, dialect_.absent_value);
  const bool is_conditional = condition.if_absent || !condition.if_match.empty();
  int attempts = 0;
  const auto make = [&] {
    ++attempts;
    HttpRequest next = request(url, call);
    next.new_connection = is_conditional;
    return next;
  };
  const HttpReply reply = send_with_retries(make, url);
  if (is_conditional && (reply.status == 412 || reply.status == 409 || reply.status == 404)) {
    // An attempt whose reply was lost may have written it.
    const std::optional<ObjectInfo> found = attempts > 1 ? find(url) : std::nullopt;
    if (!found || found->size != std::ssize(bytes)) return WriteResult::kConditionFailed;
    std::string there(bytes.size(), '\0');
    read(*found, 0, std::as_writable_bytes(std::span(there)));
    if (there != bytes) return WriteResult::kConditionFailed;
    if (etag != nullptr) *etag = found->etag;
    return WriteResult::kWritten;
  }
  if (reply.status / 100 != 2) refuse(url, reply);
  if (etag != nullptr) *etag = version(reply);
  return WriteResult::kWritten;
}

void BucketStorage::upload(const std::string& url, const std::filesystem::path& path) {
  constexpr int64_t kWhole = int64_t{16} << 20;
  const ByteFile file = ByteFile::open(path);
  if (file.size() <= kWhole) {
    std::string bytes(static_cast<size_t>(file.size()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(bytes)));
    write(url, bytes, {}, nullptr);
    return;
  }
  const HttpReply begun = send(url, {.method = "POST", .query = "uploads="});
  const std::string id = xml_text(begun.body, "UploadId");
  if (begun.status != 200 || id.empty()) refuse(url, begun);
  try {
    upload_parts(url, file, id);
  } catch (...) {
    try {  // The parts would be paid for.
      send(url, {.method = "DELETE", .query = "uploadId=" + url_escaped(id)});
    } catch (const Error&) {
    }
    throw;
  }
}

void BucketStorage::upload_parts(const std::string& url, const ByteFile& file,
                                 const std::string& id) {
  constexpr int64_t kPart = int64_t{16} << 20, kMostParts = 9000;  // Services accept 10,000.
  const int64_t size = file.size(), part = std::max(kPart, (size + kMostParts - 1) / kMostParts);
  std::vector<std::string> etags(static_cast<size_t>((size + part - 1) / part));
  parallel_for(std::ssize(etags), kTransfersAtOnce, [&](int64_t i) {
    const int64_t begin = i * part;
    std::string bytes(static_cast<size_t>(std::min(part, size - begin)), '\0');
    file.read_at(begin, std::as_writable_bytes(std::span(bytes)));
    const HttpReply reply =
        send(url, {.method = "PUT",
                   .query = fmt::format("partNumber={}&uploadId={}", i + 1, url_escaped(id)),
                   .body = std::move(bytes)});
    if (reply.status != 200) refuse(url, reply);
    etags[static_cast<size_t>(i)] = reply.header("etag");
  });
  complete(url, id, size, etags);
}

void BucketStorage::complete(const std::string& url, const std::string& id, int64_t size,
                             const std::vector<std::string>& etags) {
  std::string parts;
  for (size_t i = 0; i < etags.size(); ++i)
    parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1,
                         markup_text(etags[i]));
  const HttpReply reply = send(
      url, {.method = "POST",
            .query = "uploadId=" + url_escaped(id),
            .body = fmt::format("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts)});
  // A reply of status 200 may hold an error; one of 404 may follow a reply that was lost.
  if (reply.status == 200 && xml_text(reply.body, "Code").empty()) return;
  if (const auto found = find(url); reply.status == 404 && found && found->size == size) return;
  refuse(url, reply);
}

}  // namespace

std::unique_ptr<BaseStorage> s3_storage() { return std::make_unique<BucketStorage>(kS3); }
std::unique_ptr<BaseStorage> google_storage() { return std::make_unique<BucketStorage>(kGoogle); }

}  // namespace tessera
