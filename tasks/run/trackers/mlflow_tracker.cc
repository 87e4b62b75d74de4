// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/trackers/mlflow_tracker.h"

#include <cctype>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "core/io/environment.h"
#include "core/io/file.h"

namespace tessera {
namespace {

int64_t now_milliseconds() { return int64_t{1000} * std::time(nullptr); }

// MLflow's names may not have brackets: "x_layers[3].ffn" is "x_layers.3.ffn" there.
std::string mlflow_name(const std::string& name) {
  constexpr size_t kLongest = 250;
  constexpr std::string_view kAllowed = "_-. /";
  std::string result;
  for (const unsigned char c : name)
    if (c == '[')
      result += '.';
    else if (c != ']')
      result +=
          std::isalnum(c) != 0 || kAllowed.find(static_cast<char>(c)) != std::string_view::npos
              ? static_cast<char>(c)
              : '_';
  return result.substr(0, kLongest);
}

std::string metric_text(const std::string& name, double value, const TrackerRecord& record) {
  JsonLine json;
  json.add("key", mlflow_name(name));
  if (std::isfinite(value))
    json.add("value", value);
  else
    json.add("value", std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
  return json.add("timestamp", record.milliseconds).add("step", record.step).text();
}

std::string pair_text(const std::string& key, const std::string& value) {
  constexpr size_t kLongest = 500;
  return json_object({{"key", key}, {"value", value.substr(0, kLongest)}});
}

// The tag "name=value"; of a word, the value is empty.
std::string tag_text(const std::string& tag) {
  const size_t equals = tag.find('=');
  return pair_text(tag.substr(0, equals),
                   equals == std::string::npos ? "" : tag.substr(equals + 1));
}

}  // namespace

MlflowTracker::MlflowTracker(const HParams& p) : p_(p), url_(p.uri) {
  if (url_.empty()) url_ = environment("MLFLOW_TRACKING_URI");
  if (!url_.starts_with("http://") && !url_.starts_with("https://"))
    fail(
        "mlflow: uri is '{}', expected http://HOST:PORT or https://…; set it, or the environment "
        "variable MLFLOW_TRACKING_URI",
        url_.find('@') == std::string::npos ? url_ : "(not shown)");
  if (has_secret(url_))
    fail(
        "mlflow: uri contains a password, which would be written to hparams.toml; set the "
        "environment variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead");
  while (url_.ends_with('/')) url_.pop_back();
  url_ += "/api/2.0/";
}

HttpReply MlflowTracker::request(std::string_view method, const std::string& path,
                                 const std::string& body) const {
  HttpRequest request{.method = std::string(method),
                      .url = url_ + path,
                      .headers = {{"Content-Type", "application/json"}},
                      .body = body,
                      .timeout_seconds = p_.timeout_seconds,
                      .is_cancelled = [this](double) { return is_abandoned(); }};
  const std::string token = environment("MLFLOW_TRACKING_TOKEN"),
                    user = environment("MLFLOW_TRACKING_USERNAME");
  if (!user.empty())
    request.headers.emplace_back(
        "Authorization", "Basic " + base64(user + ":" + environment("MLFLOW_TRACKING_PASSWORD")));
  else if (!token.empty())
    request.headers.emplace_back("Authorization", "Bearer " + token);
  return http_request(request);
}

Json MlflowTracker::call(std::string_view method, const std::string& path,
                         const std::string& body) const {
  constexpr size_t kShown = 200;
  const HttpReply reply = request(method, path, body);
  if (reply.status == 200) return parse_json(reply.body.empty() ? "{}" : reply.body, path);
  const std::string text = fmt::format("{} {}{}: status {}: {}", method, url_, path, reply.status,
                                       reply.body.substr(0, kShown));
  if (reply.status == 401 || reply.status == 403)
    throw TrackerRefused(text +
                         "; set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD");
  constexpr int kTooMany = 429, kServer = 500;
  if (reply.status < kServer && reply.status != kTooMany) throw TrackerRefused(text);
  throw Error(text);
}

std::string MlflowTracker::experiment_id() const {
  const std::string found = "mlflow/experiments/get-by-name?experiment_name=";
  const HttpReply reply = request("GET", found + url_escaped(p_.experiment), "");
  if (reply.status == 200)
    return parse_json(reply.body, found).at("experiment").at("experiment_id").as_string();
  if (reply.status != 404) call("GET", found + url_escaped(p_.experiment));  // Its error.
  return call("POST", "mlflow/experiments/create", json_object({{"name", p_.experiment}}))
      .at("experiment_id")
      .as_string();
}

bool MlflowTracker::resume(const std::string& id) {
  const HttpReply reply = request("GET", "mlflow/runs/get?run_id=" + url_escaped(id), "");
  if (reply.status == 404) return false;  // It was removed.
  const Json known =
      call("POST", "mlflow/runs/update", json_object({{"run_id", id}, {"status", "RUNNING"}}));
  const std::string uri = known.at("run_info").at("artifact_uri").as_string();
  constexpr std::string_view kProxied = "mlflow-artifacts:/";
  if (uri.starts_with(kProxied))
    artifacts_ = "mlflow-artifacts/artifacts/" + uri.substr(kProxied.size());
  id_ = id;
  return true;
}

void MlflowTracker::create(const TrackedRun& run) {
  std::vector<std::string> tags = {pair_text("tessera.directory", run.directory.string()),
                                   pair_text("tessera.run_id", run.id)};
  for (const std::string& tag : run.tags) tags.push_back(tag_text(tag));
  const Json made = call("POST", "mlflow/runs/create",
                         json_object({{"experiment_id", experiment_id()},
                                      {"run_name", run.name},
                                      {"start_time", now_milliseconds()},
                                      {"tags", RawJson{json_list(tags)}}}));
  const std::string id = made.at("run").at("info").at("run_id").as_string();
  write_file_atomically(run.file("run_id"), id);
  if (!resume(id)) fail("mlflow: {} has lost the run {} that it made", url_, id);
}

void MlflowTracker::log_parameters(const TrackedRun& run) const {
  constexpr size_t kMostAtOnce = 100;
  std::vector<std::string> parameters;
  const auto send = [&] {
    if (parameters.empty()) return;
    // A resumed run may have another configuration; MLflow keeps the first (status 400).
    const HttpReply reply =
        request("POST", "mlflow/runs/log-batch",
                json_object({{"run_id", id_}, {"params", RawJson{json_list(parameters)}}}));
    if (reply.status != 200 && reply.status != 400)
      fail("POST {}mlflow/runs/log-batch: status {}", url_, reply.status);
    parameters.clear();
  };
  for (const auto& [path, value] : run.config) {
    parameters.push_back(pair_text(mlflow_name(path), value));
    if (parameters.size() == kMostAtOnce) send();
  }
  send();
}

void MlflowTracker::start(const TrackedRun& run) {
  directory_ = run.directory.string();
  const std::filesystem::path kept = run.file("run_id");
  if (!std::filesystem::exists(kept) || !resume(read_file(kept))) create(run);
  log_parameters(run);
}

void MlflowTracker::log_metrics(const std::vector<std::string>& metrics) const {
  call("POST", "mlflow/runs/log-batch",
       json_object({{"run_id", id_}, {"metrics", RawJson{json_list(metrics)}}}));
}

void MlflowTracker::put_artifact(const std::string& name, const std::string& text) const {
  if (artifacts_.empty()) return;
  std::string path = artifacts_;
  std::istringstream segments(name);
  for (std::string segment; std::getline(segments, segment, '/');)
    path += "/" + url_escaped(segment);
  call("PUT", path, text);
}

void MlflowTracker::write(const std::vector<TrackerRecord>& records) {
  constexpr size_t kMostAtOnce = 1000;
  std::vector<std::string> metrics;
  for (const TrackerRecord& record : records) {
    for (const auto& [name, value] : record.metrics) {
      metrics.push_back(metric_text(name, value, record));
      if (metrics.size() < kMostAtOnce) continue;
      log_metrics(metrics);
      metrics.clear();
    }
    for (const auto& [name, text] : record.texts)
      put_artifact(fmt::format("{}/step_{}.md", name, record.step), text);
    if (record.kind == TrackerRecord::Kind::kHistogram)
      put_artifact(fmt::format("histograms/{}/step_{}.json", mlflow_name(record.name), record.step),
                   record.lines);
    if (record.kind == TrackerRecord::Kind::kFile)
      put_artifact(record.name, read_file(directory_ + "/" + record.name));
  }
  if (!metrics.empty()) log_metrics(metrics);
}

void MlflowTracker::finish(const TrackerRecord& end) {
  const std::string_view status = end.name == "done"     ? "FINISHED"
                                  : end.name == "failed" ? "FAILED"
                                                         : "KILLED";
  call("POST", "mlflow/runs/update",
       json_object({{"run_id", id_}, {"status", status}, {"end_time", now_milliseconds()}}));
}

REGISTER_TEMPLATE(BaseTracker, MlflowTracker);

}  // namespace tessera
