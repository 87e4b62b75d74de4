// SPDX-License-Identifier: Apache-2.0
#include "core/io/storage/storage.h"

#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "core/base/process.h"
#include "core/base/seconds.h"
#include "core/io/environment.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/io/storage/block_cache.h"
#include "core/io/storage/retry.h"
#include "tests/support/catch.h"
#include "tests/support/s3_server.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// Makes retries quick: the delays follow from it.
struct QuickRetries {
  ScopedVariable patience{"TESSERA_STORAGE_PATIENCE", "4"};
};

// Bytes that repeat nowhere near a block's size.
std::string pattern(size_t size) {
  std::string text(size, '\0');
  uint32_t value = 1;
  for (char& c : text) {
    value = value * 1664525u + 1013904223u;
    c = static_cast<char>(value >> 24);
  }
  return text;
}

std::vector<std::string> urls_of(const std::vector<ObjectInfo>& objects) {
  std::vector<std::string> urls;
  for (const ObjectInfo& object : objects) urls.push_back(object.url);
  return urls;
}

TEST_CASE("paths with a scheme are URLs") {
  for (const char* url : {"s3://bucket/key", "hf://org/name", "gs://b", "https://host/a?b"})
    REQUIRE(is_url(url));
  for (const char* path : {"a/b", "/a", "./s3://bucket", "://x", "a b://c", "s3:/bucket"})
    REQUIRE_FALSE(is_url(path));
  REQUIRE_THAT(error_of([] { storage_of("azure://c/k"); }),
               Contains("no store has the scheme azure://") && Contains("TESSERA_STORAGE_AZURE"));
}

TEST_CASE("a URL with a password is refused, and the password is not repeated") {
  for (const char* url : {"http://me:very-secret@host/x.txt", "https://very-secret@host",
                          "sftp://me:very-secret@host/a"}) {
    const std::string refused = error_of([&] { read_file(url); });
    REQUIRE_THAT(refused, Contains("://host: the URL has a user or password") &&
                              Contains("in the environment") && !Contains("very-secret"));
    REQUIRE_THAT(error_of([&] { path_or_url(url, "--x"); }), Contains(refused));
    REQUIRE_THAT(error_of([&] { user_path(url, "--x"); }), !Contains("very-secret"));
  }
  for (const char* url :
       {"hf://org/name@main/x", "https://host/@me:x", "sftp://me@host/x", "a:b@c"})
    REQUIRE_FALSE(has_secret(url));
}

TEST_CASE("objects of a bucket are written, found, listed, read by ranges and removed") {
  const QuickRetries quick;
  const S3Server server;
  BaseStorage& store = storage_of("s3://data");
  const std::vector<std::string> names = {"s3://data/a b/ü+%20&<x>.txt", "s3://data/a/1",
                                          "s3://data/a/2", "s3://data/ab"};
  for (const std::string& name : names) write_object(name, "text of " + name);
  REQUIRE(urls_of(store.list("s3://data/")) == names);
  REQUIRE(urls_of(store.list("s3://data/a/")) == std::vector{names[1], names[2]});
  REQUIRE(urls_of(store.list("s3://data/a b/")) == std::vector{names[0]});
  for (const std::string& name : names) REQUIRE(read_file(name) == "text of " + name);
  REQUIRE_FALSE(store.find("s3://data/none"));
  REQUIRE_FALSE(store.find("s3://data/a"));
  const auto object = store.find(names[1]);
  REQUIRE(object->size == std::ssize("text of " + names[1]));
  std::string part(4, ' ');
  store.read(*object, 8, std::as_writable_bytes(std::span(part)));
  REQUIRE(part == "s3:/");
  store.remove(names[1]);
  store.remove(names[1]);
  REQUIRE_FALSE(store.find(names[1]));
  REQUIRE(error_of([&] { read_file(names[1]); }) == names[1] + ": no such file");
}

TEST_CASE("a list of several pages is whole") {
  const S3Server server({"--most_keys=2"});
  std::vector<std::string> names;
  for (const char* name : {"a", "b &+", "c", "d/e", "f"}) {
    names.push_back(std::string("s3://data/") + name);
    write_object(names.back(), "x");
  }
  REQUIRE(urls_of(storage_of("s3://data").list("s3://data/")) == names);
  REQUIRE(server.requests("GET", "list-type") == 3);
}

TEST_CASE("writes can depend on what is there") {
  const S3Server server;
  BaseStorage& store = storage_of("s3://data");
  std::string first, second;
  const std::string url = "s3://data/lock";
  REQUIRE(store.write(url, "1", {.if_absent = true}, &first) == WriteResult::kWritten);
  REQUIRE(store.write(url, "2", {.if_absent = true}, nullptr) == WriteResult::kConditionFailed);
  REQUIRE(store.write(url, "3", {.if_match = first}, &second) == WriteResult::kWritten);
  REQUIRE(store.write(url, "4", {.if_match = first}, nullptr) == WriteResult::kConditionFailed);
  REQUIRE(server.get("data/lock") == "3");
  // A reply that is lost: the second attempt finds the write done.
  const QuickRetries quick;
  server.plant(R"([{"method": "PUT", "times": 1, "do": "lost_reply"}])");
  REQUIRE(store.write(url, "5", {.if_match = second}, nullptr) == WriteResult::kWritten);
}

TEST_CASE("a bucket of Google is used by its signatures and generations") {
  const S3Server server;
  const ScopedVariable address("GS_ENDPOINT_URL", server.address().c_str()),
      key("GS_ACCESS_KEY_ID", "GOOGKEY"), secret("GS_SECRET_ACCESS_KEY", "google/secret+key");
  BaseStorage& store = storage_of("gs://data");
  const std::string url = "gs://data/a b/ü+%20&.txt";
  std::string first, second;
  REQUIRE(store.write(url, "1", {.if_absent = true}, &first) == WriteResult::kWritten);
  REQUIRE(store.write(url, "2", {.if_absent = true}, nullptr) == WriteResult::kConditionFailed);
  REQUIRE(store.write(url, "3", {.if_match = first}, &second) == WriteResult::kWritten);
  REQUIRE(store.write(url, "4", {.if_match = first}, nullptr) == WriteResult::kConditionFailed);
  std::vector<std::string> generations;
  for (const Json& each : server.log())
    generations.push_back(each.at("headers").at("x-goog-if-generation-match").as_string());
  REQUIRE(generations == std::vector<std::string>{"0", "0", first, first});
  REQUIRE(read_file(url) == "3");
  const std::vector<ObjectInfo> listed = store.list("gs://data/a b/");
  REQUIRE(urls_of(listed) == std::vector{url});
  REQUIRE(listed[0].etag == second);
  std::string text(1, ' ');
  const auto read_first = [&] {
    store.read({url, 1, first}, 0, std::as_writable_bytes(std::span(text)));
  };
  REQUIRE_THAT(error_of(read_first), Contains("has changed since it was opened"));
  const TemporaryDirectory directory;
  const std::string bytes = pattern((size_t{17} << 20) + 3);
  write_file_atomically(directory / "f", bytes);
  store.upload("gs://data/parts", directory / "f");
  REQUIRE(server.get("data/parts") == bytes);
  store.remove(url);
  REQUIRE_FALSE(store.find(url));
  const ScopedVariable wrong("GS_SECRET_ACCESS_KEY", "google/secret+kex");
  REQUIRE_THAT(error_of([&] { write_object(url, "x"); }),
               Contains("access denied (SignatureDoesNotMatch: "));
  REQUIRE(server.objects() == std::vector<std::string>{"data/parts"});
}

TEST_CASE("a large file is uploaded in parts, and is there whole or not at all") {
  const QuickRetries quick;
  const S3Server server;
  const TemporaryDirectory directory;
  const std::string bytes = pattern((size_t{17} << 20) + 3);
  write_file_atomically(directory / "f", bytes);
  server.plant(R"([{"method": "PUT", "match": "partNumber=2", "times": 1, "do": "500"},
                   {"method": "PUT", "match": "partNumber=1", "times": 1, "do": "reset"},
                   {"method": "POST", "match": "uploadId", "times": 1, "do": "lost_reply"}])");
  storage_of("s3://data").upload("s3://data/f", directory / "f");
  REQUIRE(server.get("data/f") == bytes);
  REQUIRE(server.unfinished_uploads() == 0);
  // Every answer fails: nothing is left.
  server.plant(R"([{"method": "PUT", "match": "partNumber=2", "do": "full"}])");
  REQUIRE_THAT(error_of([&] { storage_of("s3://data").upload("s3://data/g", directory / "f"); }),
               Contains("s3://data/g: the bucket is full"));
  REQUIRE(server.objects("data/g").empty());
  REQUIRE(server.unfinished_uploads() == 0);
}

TEST_CASE("reading survives transient failures, and continues in the middle of a body") {
  const QuickRetries quick;
  const S3Server server;
  const std::string bytes = pattern(size_t{9} << 20);
  server.put("data/f", bytes);
  server.plant(
      R"([{"method": "GET", "times": 1, "do": "500"}, {"method": "GET", "times": 2, "do": "reset"},
                   {"method": "GET", "times": 1, "do": "503", "retry_after": "0.01"}])");
  REQUIRE(read_file("s3://data/f") == bytes);
  REQUIRE(server.requests("GET", "data/f") == 4 + 2);
}

TEST_CASE("a transfer that stands still is ended soon after a request to stop") {
  const S3Server server;
  server.put("data/f", "text");
  server.plant(R"([{"method": "GET", "do": "slow", "seconds": 60}])");
  const auto begin = std::chrono::steady_clock::now();
  std::thread stops = start_thread([&] {
    while (server.requests("GET") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop_asked_at = begin;
  });
  const std::string error = error_of([] { read_file("s3://data/f"); });
  stops.join();
  stop_asked_at = std::chrono::steady_clock::time_point();
  REQUIRE_THAT(error, Contains("the server does not answer; tried for 1"));
  REQUIRE(seconds_since(begin) < 20);
}

TEST_CASE("what cannot be read is an error that says why") {
  const QuickRetries quick;
  const S3Server server;
  server.put("data/f", "text");
  const std::string url = "s3://data/f";
  const auto error_with = [&](const std::string& fault) {
    server.plant("[{\"method\": \"GET\", \"match\": \"data\", " + fault + "}]");
    return error_of([&] { storage_of(url).list("s3://data/"); });
  };
  REQUIRE_THAT(error_with(R"("do": "expired")"), Contains("session token") && Contains("renew"));
  REQUIRE_THAT(error_with(R"("do": "denied")"), Contains("access denied (AccessDenied"));
  REQUIRE_THAT(error_with(R"("do": "redirect")"), Contains("where no credentials are sent"));
  REQUIRE_THAT(error_with(R"("do": "500")"), Contains("status 500 (InternalError"));
  server.plant("[]");
  const auto object = storage_of(url).find(url);
  server.put("data/f", "TEXT");
  std::string text(4, ' ');
  REQUIRE_THAT(
      error_of([&] { storage_of(url).read(*object, 0, std::as_writable_bytes(std::span(text))); }),
      Contains("s3://data/f: has changed since it was opened"));
  const ScopedVariable nobody("AWS_ACCESS_KEY_ID", nullptr);
  const ScopedVariable nowhere("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent");
  const ScopedVariable none("AWS_CONFIG_FILE", "/nonexistent");
  REQUIRE_THAT(error_of([&] { read_file(url); }), Contains("set AWS_ACCESS_KEY_ID"));
}

TEST_CASE("a clock may be a few minutes off; a wrong one is named") {
  const QuickRetries quick;
  {
    const S3Server server({"--clock_offset=300"});
    server.put("data/f", "text");
    REQUIRE(read_file("s3://data/f") == "text");
  }
  const S3Server server({"--clock_offset=-1200"});
  REQUIRE_THAT(error_of([] { read_file("s3://data/f"); }),
               Contains("the clock of this machine is 20 minutes ahead of the server's"));
}

TEST_CASE("credentials and the address come from the files of Amazon's tools") {
  const S3Server server;
  server.put("data/f", "text");
  const TemporaryDirectory directory;
  write_file_atomically(directory / "credentials",
                        "[default]\naws_access_key_id = other\n[team]\n# a comment\n"
                        "aws_access_key_id=TESTKEYID\naws_secret_access_key = test/secret+key\n");
  write_file_atomically(
      directory / "config",
      "[profile team]\nregion = us-east-1\nendpoint_url = " + server.address() + "/\n");
  const ScopedVariable keys("AWS_SHARED_CREDENTIALS_FILE", (directory / "credentials").c_str());
  const ScopedVariable config("AWS_CONFIG_FILE", (directory / "config").c_str());
  const ScopedVariable profile("AWS_PROFILE", "team");
  const ScopedVariable id("AWS_ACCESS_KEY_ID", nullptr), secret("AWS_SECRET_ACCESS_KEY", nullptr),
      endpoint("AWS_ENDPOINT_URL", nullptr), region("AWS_REGION", nullptr);
  REQUIRE(read_file("s3://data/f") == "text");
}

TEST_CASE("the blocks on the disk have at most the size that is set") {
  const S3Server server;
  constexpr int64_t kMost = 6 * BlockCache::kBlockBytes;
  const ScopedVariable most("TESSERA_CACHE_BYTES", std::to_string(kMost).c_str());
  server.put("data/large", pattern(size_t{80} << 20));
  const auto object = *storage_of("s3://data").find("s3://data/large");
  BlockCache cache;
  for (int64_t i = 0; i < 10; ++i) {
    cache.get(object, i);
    int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(server.cache() / "blocks"))
      bytes += static_cast<int64_t>(entry.file_size());
    REQUIRE(bytes <= kMost);
    REQUIRE(bytes > 0);
  }
}

TEST_CASE("blocks are kept on the disk for all processes, and checked") {
  const S3Server server;
  const std::string bytes = pattern(size_t{9} << 20);
  server.put("data/kept", bytes);
  REQUIRE(read_file("s3://data/kept") == bytes);
  const int64_t read_once = server.requests("GET", "data/kept");
  const auto object = *storage_of("s3://data").find("s3://data/kept");
  // Another process has an empty memory.
  REQUIRE(*BlockCache().get(object, 1) == *BlockCache::instance().get(object, 1));
  REQUIRE(server.requests("GET", "data/kept") == read_once);
  // A damaged block is read again.
  for (const auto& entry : fs::directory_iterator(server.cache() / "blocks"))
    if (entry.path().filename() != "lock") fs::resize_file(entry.path(), 1000);
  REQUIRE(*BlockCache().get(object, 1) == *BlockCache::instance().get(object, 1));
  REQUIRE(server.requests("GET", "data/kept") == read_once + 1);
}

// Run by the next test, in processes of their own.
TEST_CASE("a process reads s3://data/shared", "[.]") {
  REQUIRE(read_file("s3://data/shared") == pattern(size_t{40} << 20));
}

TEST_CASE("processes that read one object at the same time share its blocks") {
  const S3Server server;
  server.put("data/shared", pattern(size_t{40} << 20));
  const std::vector<std::string> command{"/proc/self/exe", "a process reads s3://data/shared"};
  std::vector<std::unique_ptr<ChildProcess>> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(std::make_unique<ChildProcess>(command));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  for (const auto& reader : readers) REQUIRE(reader->wait(deadline) == 0);
  const int64_t requests = server.requests("GET", "data/shared");
  REQUIRE(ChildProcess(command).wait(deadline) == 0);
  REQUIRE(server.requests("GET", "data/shared") == requests);
}

TEST_CASE("requests go through a proxy") {
  const S3Server server;  // Accepts the requests that a proxy gets.
  const ScopedVariable endpoint("AWS_ENDPOINT_URL", "http://store.invalid:9000");
  const ScopedVariable patience("TESSERA_STORAGE_PATIENCE", "1");
  REQUIRE_THAT(error_of([] { write_object("s3://data/a", "x"); }), Contains("store.invalid"));
  const ScopedVariable proxy("http_proxy", server.address().c_str());
  write_object("s3://data/a", "through a proxy");
  REQUIRE(read_file("s3://data/a") == "through a proxy");
  REQUIRE(server.requests("PUT", "http://store.invalid:9000/data/a") == 1);
  const ScopedVariable direct("no_proxy", "store.invalid");
  REQUIRE_THAT(error_of([] { write_object("s3://data/b", "x"); }), Contains("store.invalid"));
}

TEST_CASE("web servers and the hub are read; a token is not sent to another host") {
  const QuickRetries quick;
  const S3Server server;
  const std::string bytes = pattern(size_t{5} << 20);
  server.put("web/f.bin", bytes);
  REQUIRE(read_file(server.address() + "/_public/web/f.bin") == bytes);
  REQUIRE_THAT(error_of([&] { read_file(server.address() + "/_public/web/none"); }),
               Contains("no such file"));
  REQUIRE_THAT(error_of([&] { write_object(server.address() + "/_public/web/g", "x"); }),
               Contains("can only be read"));
  server.put("hf/private/model/config.json", "{}");
  server.put("hf/private/model/weights/a.bin", bytes);
  BaseStorage& hub = storage_of("hf://");
  REQUIRE(urls_of(hub.list("hf://private/model/")) ==
          std::vector<std::string>{"hf://private/model/config.json",
                                   "hf://private/model/weights/a.bin"});
  const int64_t requests = std::ssize(server.log());
  REQUIRE(read_file("hf://private/model/weights/a.bin") == bytes);
  REQUIRE(std::ssize(server.log()) == requests + 4);  // HEAD and GET, each redirected once.
  const fs::path copy =
      local_copy("hf://private/model", [](std::string_view name) { return name != "config.json"; });
  REQUIRE(read_file(copy / "weights/a.bin") == bytes);
  REQUIRE_FALSE(fs::exists(copy / "config.json"));
  REQUIRE(read_file(local_copy("hf://private/model/config.json")) == "{}");
  {
    const ScopedVariable token("HF_TOKEN", "wrong");
    REQUIRE_THAT(error_of([] { read_file("hf://private/model/config.json"); }),
                 Contains("access denied; set HF_TOKEN"));
  }
  REQUIRE_THAT(error_of([] { read_file("hf://name"); }), Contains("expected hf://org/name/path"));
  std::map<bool, std::set<bool>> has_credentials;  // By whether it is the other host.
  for (const Json& entry : server.log())
    has_credentials[server.other_address().ends_with(
                        fmt::format(":{}", entry.at("port").as_integer()))]
        .insert(entry.at("has_credentials").as_bool());
  REQUIRE(has_credentials[true] == std::set{false});
  REQUIRE(has_credentials[false].contains(true));
}

TEST_CASE("any other store is a command") {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "store.sh", R"sh(cd "$(dirname "$0")"
case $1 in
  list) for f in objects/*; do
          [ -f "$f" ] && printf '%s\t%s\tdisk://%s\n' $(stat -c %s $f) $(cksum <$f | cut -d' ' -f1) ${f#objects/}
        done; true ;;
  read) tail -c +$(($3 + 1)) objects/${2#disk://} | head -c $4 ;;
  write) cp "$3" objects/${2#disk://} ;;
  remove) rm -f objects/${2#disk://} ;;
esac
)sh");
  fs::create_directory(directory / "objects");
  const std::string command = "sh " + (directory / "store.sh").string();
  const TemporaryDirectory cache;
  const ScopedVariable variable("TESSERA_STORAGE_DISK", command.c_str());
  const ScopedVariable where("TESSERA_CACHE_DIR", cache.path().c_str());
  const ScopedVariable patience("TESSERA_STORAGE_PATIENCE", "0.1");
  const std::string bytes = pattern(size_t{5} << 20);
  write_object("disk://f", bytes);
  REQUIRE(read_file("disk://f") == bytes);
  REQUIRE(urls_of(storage_of("disk://").list("disk://")) == std::vector<std::string>{"disk://f"});
  storage_of("disk://").remove("disk://f");
  REQUIRE_FALSE(storage_of("disk://").find("disk://f"));
  const ScopedVariable failing("TESSERA_STORAGE_DISK", "false");
  REQUIRE_THAT(error_of([] { storage_of("disk://").list("disk://"); }),
               Contains("false list disk://: exit status 1"));
}

TEST_CASE("an HDF5 file is read in a bucket") {
  const S3Server server;
  const TemporaryDirectory directory;
  std::vector<int32_t> values(1 << 20);
  std::iota(values.begin(), values.end(), 7);
  Hdf5File file = Hdf5File::create(directory / "f.h5");
  file.create_dataset("a/b", StoredType::kI32, {1 << 20}).write(std::as_bytes(std::span(values)));
  file.close();
  upload_folder(directory.path(), "s3://data/folder/");
  std::vector<int32_t> found(values.size());
  const Hdf5File remote = Hdf5File::open("s3://data/folder/f.h5");
  remote.dataset("a/b").read(std::as_writable_bytes(std::span(found)));
  REQUIRE(found == values);
  Hdf5DirectReader(remote.dataset("a/b"), "f")
      .read(5, std::as_writable_bytes(std::span(found).first(9)));
  REQUIRE(found[8] == 7 + 13);
  server.put("data/folder/g.h5", "no HDF5");
  REQUIRE_THAT(error_of([] { Hdf5File::open("s3://data/folder/g.h5"); }),
               Contains("not an HDF5 file"));
}

TEST_CASE("an object's name cannot leave the folder of its copy") {
  const S3Server server;
  server.put("data/model/../../evil", "x");
  const std::string error = error_of([] { local_copy("s3://data/model"); });
  REQUIRE_THAT(error, Contains("has '..'"));
}

}  // namespace
}  // namespace tessera
