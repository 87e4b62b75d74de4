// SPDX-License-Identifier: Apache-2.0
// Files of web servers (https://) and of Hugging Face's hub (hf://), which are only read.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/storage/credentials.h"
#include "core/io/storage/retry.h"
#include "core/io/storage/storage.h"
#include "core/io/storage/stores.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_page(const std::string& url, const HttpReply& reply,
                              std::string_view advice) {
  const bool denied = reply.status == 401 || reply.status == 403;
  const std::string text =
      fmt::format("{}: {}{}", url,
                  denied                ? "access denied"
                  : reply.status == 404 ? "no such file"
                                        : fmt::format("status {}", reply.status),
                  denied ? advice : "");
  if (reply.status == 404 || reply.status == 416) throw Error(text);
  throw NoAccess(text);
}

constexpr size_t kMostRedirects = 8;

bool is_redirect(const HttpReply& reply) {
  return reply.status / 100 == 3 && !reply.header("location").empty();
}

// Returns the URL of a Location header, which may be relative.
std::string redirected(const std::string& from, const std::string& location) {
  if (location.find("://") != std::string::npos) return location;
  const UrlParts parts = parse_url(from);
  const std::string root = fmt::format("{}://{}", parts.scheme, parts.host);
  if (location.starts_with('/')) return root + location;
  return root + parts.path.substr(0, parts.path.rfind('/') + 1) + location;
}

// The ETag that names the contents. A weak one may be that of other bytes.
std::string strong_etag(std::string etag) {
  if (etag.starts_with("W/")) return "";
  std::erase(etag, '"');
  return etag;
}

class WebStorage : public BaseStorage {
 public:
  std::optional<ObjectInfo> find(const std::string& url) override {
    const Target target = follow(url, {.method = "HEAD", .url = address(url)});
    const HttpReply& reply = target.reply;
    if (reply.status == 404) return std::nullopt;
    if (reply.status != 200) refuse_page(url, reply, advice());
    const std::string size = first_header(target, {"x-linked-size", "content-length"});
    if (size.empty()) fail("{}: the server does not tell the size of the file", url);
    return ObjectInfo{url, object_size(size),
                      strong_etag(first_header(target, {"x-linked-etag", "etag"}))};
  }

  std::vector<ObjectInfo> list(const std::string& prefix) override {
    const auto found = prefix.ends_with('/') ? std::nullopt : find(prefix);
    if (found) return {*found};
    fail("{}: a web server does not list its files; name each file", prefix);
  }

  void read(const ObjectInfo& object, int64_t offset, std::span<std::byte> bytes) override {
    if (bytes.empty()) return;
    std::string place = address(object.url);
    const auto make = [&](const HttpHeaders& range) {
      HttpRequest request{.url = place, .headers = range};
      add_token(object.url, &request);
      return request;
    };
    HttpReply reply = read_range(make, object.url, offset, bytes);
    for (size_t i = 0; is_redirect(reply) && i < kMostRedirects; ++i) {
      place = redirected(place, reply.header("location"));
      reply = read_range(make, object.url, offset, bytes);
    }
    if (reply.status / 100 != 2) refuse_page(object.url, reply, advice());
    const std::string etag = strong_etag(reply.header("etag"));
    if (!object.etag.empty() && !etag.empty() && etag != object.etag &&
        place == address(object.url))
      fail("{}: has changed since it was opened", object.url);
  }

 protected:
  // Returns the address of a URL of this store.
  virtual std::string address(const std::string& url) const { return url; }
  virtual std::string token() const { return ""; }
  virtual std::string_view advice() const { return ""; }

  // Sends the token to the host of the URL only, and not to one that it redirects to.
  void add_token(const std::string& url, HttpRequest* request) const {
    const UrlParts own = parse_url(address(url)), asked = parse_url(request->url);
    const std::string secret = token();
    if (!secret.empty() && own.host == asked.host && own.scheme == asked.scheme)
      request->headers.emplace_back("authorization", "Bearer " + secret);
  }

  struct Target {
    std::string url;                 // After redirects.
    HttpReply reply;                 // The one for `url`.
    std::vector<HttpReply> earlier;  // The redirects.
  };

  Target follow(const std::string& url, HttpRequest request) const {
    for (Target target{request.url, {}, {}};;) {
      const auto make = [&] {
        HttpRequest next = request;
        next.url = target.url;
        add_token(url, &next);
        return next;
      };
      target.reply = send_with_retries(make, url);
      if (!is_redirect(target.reply)) return target;
      if (target.earlier.size() == kMostRedirects)
        fail("{}: more than {} redirects", url, kMostRedirects);
      target.url = redirected(target.url, target.reply.header("location"));
      target.earlier.push_back(std::move(target.reply));
    }
  }

 private:
  // A hub's redirect names the file's size and version, and the server behind it another version.
  static std::string first_header(const Target& target,
                                  std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      for (const HttpReply& reply : target.earlier)
        if (name.starts_with("x-") && !reply.header(name).empty()) return reply.header(name);
      if (!target.reply.header(name).empty()) return target.reply.header(name);
    }
    return "";
  }
};

// A place on the hub: hf://[datasets/]org/name[@revision]/path.
struct HubPlace {
  std::string kind;  // "", "datasets/", "spaces/": before the repository in URLs of files.
  std::string repository, revision, path;
};

HubPlace hub_place(const std::string& url) {
  HubPlace place;
  std::string rest = url.substr(url.find("://") + 3);
  for (const std::string_view kind : {"datasets/", "spaces/", "models/"})
    if (rest.starts_with(kind)) {
      if (kind != "models/") place.kind = kind;
      rest.erase(0, kind.size());
    }
  const size_t name = rest.find('/');
  const size_t end = name == std::string::npos ? name : rest.find('/', name + 1);
  place.repository = rest.substr(0, end);
  if (end != std::string::npos) place.path = rest.substr(end + 1);
  const size_t at = place.repository.find('@');
  place.revision =
      at == std::string::npos ? "main" : url_unescaped(place.repository.substr(at + 1));
  place.repository.resize(std::min(at, place.repository.size()));
  if (name == std::string::npos || name + 1 >= place.repository.size())
    fail("{}: expected hf://org/name/path, hf://datasets/org/name/path, or org/name@revision", url);
  return place;
}

class HuggingFaceStorage final : public WebStorage {
 public:
  std::optional<ObjectInfo> find(const std::string& url) override {
    if (hub_place(url).path.empty()) return std::nullopt;
    return WebStorage::find(url);
  }

  std::vector<ObjectInfo> list(const std::string& prefix) override {
    const HubPlace place = hub_place(prefix);
    const std::string kind = place.kind.empty() ? "models/" : place.kind;
    const std::string root = prefix.substr(0, prefix.size() - place.path.size());
    std::string page = fmt::format("{}/api/{}{}/tree/{}?recursive=true", endpoint(), kind,
                                   place.repository, url_escaped(place.revision));
    std::vector<ObjectInfo> objects;
    while (!page.empty()) {
      const HttpReply reply = follow(prefix, {.url = page}).reply;
      if (reply.status != 200) refuse_page(prefix, reply, advice());
      const Json entries = parse_json(reply.body, page);
      for (const Json& entry : entries.as_array()) {
        if (entry.at("type").as_string() != "file") continue;
        const Json* const lfs = entry.find("lfs");
        ObjectInfo object{(root.ends_with('/') ? root : root + '/') + entry.at("path").as_string(),
                          entry.at("size").as_integer(),
                          (lfs != nullptr ? *lfs : entry).at("oid").as_string()};
        if (object.url.starts_with(prefix)) objects.push_back(std::move(object));
      }
      const std::string link = reply.header("link");  // <https://…>; rel="next"
      page =
          link.find("rel=\"next\"") == std::string::npos ? "" : link.substr(1, link.find('>') - 1);
    }
    std::ranges::sort(objects, {}, &ObjectInfo::url);
    return objects;
  }

 protected:
  std::string address(const std::string& url) const override {
    const HubPlace place = hub_place(url);
    return fmt::format("{}/{}{}/resolve/{}/{}", endpoint(), place.kind, place.repository,
                       url_escaped(place.revision), url_escaped(place.path, "/"));
  }
  std::string token() const override { return hugging_face_token(); }
  std::string_view advice() const override {
    return "; set HF_TOKEN to a token that may read it, and accept the repository's terms";
  }

 private:
  static std::string endpoint() {
    std::string given = environment("HF_ENDPOINT");
    while (given.ends_with('/')) given.pop_back();
    return given.empty() ? "https://huggingface.co" : given;
  }
};

}  // namespace

std::unique_ptr<BaseStorage> web_storage() { return std::make_unique<WebStorage>(); }
std::unique_ptr<BaseStorage> hugging_face_storage() {
  return std::make_unique<HuggingFaceStorage>();
}

}  // namespace tessera
