#include "measure/load/serve_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/philox.h"
#include "base/progress.h"
#include "format/json.h"
#include "format/text.h"
#include "measure/load/event_stream.h"

namespace aerie::measure {
namespace {

using State = ServeSample::State;

constexpr size_t kShown = 300;  // bytes of an answer that is none

std::string error_of(const Json& event) {
  const Json& error = event["error"];
  if (error.is_object() && error.contains("message") && error["message"].is_string()) {
    return printable(error["message"].get_ref<const std::string&>(), kShown);
  }
  return printable(error.dump(), kShown);
}

// What a choice adds to the text, wherever servers put it.
std::string text_of(const Json& choice) {
  if (!choice.is_object()) return "";
  std::string text;
  const auto add = [&](const Json& from, const char* key) {
    const auto at = from.find(key);
    if (at != from.end() && at->is_string()) text += at->get_ref<const std::string&>();
  };
  add(choice, "text");
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return text;
  for (const char* key : {"reasoning_content", "content"}) add(*delta, key);
  const auto calls = delta->find("tool_calls");
  if (calls != delta->end() && calls->is_array() && !calls->empty()) text += calls->dump();
  return text;
}

// A reply as it streams in.
class Listener {
 public:
  explicit Listener(SteadyTime start) : start_(start) {}

  // Whether more is wanted.
  bool take(std::string_view data);
  ServeSample finish();
  void fail(std::string why) {
    failed_ = true;
    sample_.error = std::move(why);
  }

 private:
  void take_piece(const std::string& text);
  void take_usage(const Json& usage);

  SteadyTime start_;
  ServeSample sample_;
  std::string text_;
  int64_t pieces_ = 0;
  bool failed_ = false, ended_ = false;
};

bool Listener::take(std::string_view data) {
  if (data == "[DONE]") {
    ended_ = true;
    return false;
  }
  const auto event = parse_json(data, "the server's stream");
  if (!event.ok() || !event->is_object()) {
    fail(event.ok() ? "the server's stream holds what is no object" : event.status().message());
    return false;
  }
  if (event->contains("error") && !(*event)["error"].is_null()) {
    fail(error_of(*event));
    return false;
  }
  const auto choices = event->find("choices");
  if (choices != event->end() && choices->is_array() && !choices->empty()) {
    const Json& choice = choices->front();
    take_piece(text_of(choice));
    const bool finished = choice.is_object() && choice.contains("finish_reason") &&
                          !choice["finish_reason"].is_null();
    ended_ = ended_ || finished;
  }
  const auto usage = event->find("usage");
  if (usage != event->end() && usage->is_object()) take_usage(*usage);
  return true;
}

void Listener::take_piece(const std::string& text) {
  if (text.empty()) return;
  const double now = seconds_since(start_);
  if (pieces_ == 0) {
    sample_.first_token = now;
  } else {
    sample_.gaps.push_back(now - sample_.latency);
  }
  sample_.latency = now;
  text_ += text;
  ++pieces_;
}

void Listener::take_usage(const Json& usage) {
  const auto whole = [&](const char* key) {
    const auto at = usage.find(key);
    return at != usage.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
  };
  sample_.prompt_tokens = whole("prompt_tokens");
  sample_.output_tokens = whole("completion_tokens");
  sample_.counted = usage.contains("completion_tokens");
}

ServeSample Listener::finish() {
  if (!failed_ && !ended_) fail("the stream ended before the reply did");
  sample_.state = failed_ ? State::kFailed : State::kDone;
  if (!sample_.counted) sample_.output_tokens = pieces_;
  if (pieces_ == 0) sample_.first_token = sample_.latency = seconds_since(start_);
  sample_.text_hash = std::hash<std::string>()(text_);
  return std::move(sample_);
}

// The clients of one load.
class Load {
 public:
  Load(const ServeTarget& target, std::span<const std::string> bodies, const ServeLoad& load)
      : target_(target), bodies_(bodies), times_(arrivals(bodies.size(), load.rate, load.seed)) {
    result_.samples.resize(bodies.size());
    ends_.resize(bodies.size(), 0.0);
  }

  LoadResult run(std::vector<HttpClient>& clients) {
    start_ = steady_now();
    std::vector<std::thread> threads;
    threads.reserve(clients.size());
    for (HttpClient& client : clients) {
      threads.emplace_back([this, &client] { serve(client); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const double end : ends_) result_.seconds = std::max(result_.seconds, end);
    return std::move(result_);
  }

 private:
  void serve(HttpClient& client) {
    while (!target_.cancelled()) {
      const size_t i = next_.fetch_add(1);
      if (i >= bodies_.size() || !wait_until(times_[i])) return;
      const double late = seconds_since(start_) - times_[i];
      ServeSample sample = ask_streaming(client, target_, bodies_[i]);
      if (sample.state == State::kNotReached) return;
      // Without a rate, requests have no time of their own.
      sample.late = times_.back() > 0.0 ? late : 0.0;
      result_.samples[i] = std::move(sample);
      ends_[i] = seconds_since(start_);
      progress_.add(1);
    }
  }

  bool wait_until(double time) const {
    for (;;) {
      if (target_.cancelled()) return false;
      const double left = time - seconds_since(start_);
      if (left <= 0.0) return true;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.1)));
    }
  }

  const ServeTarget& target_;
  std::span<const std::string> bodies_;
  Progress progress_{"requests", static_cast<int64_t>(bodies_.size())};
  std::vector<double> times_;
  SteadyTime start_;
  std::atomic<size_t> next_ = 0;
  // Each place is one thread's.
  LoadResult result_;
  std::vector<double> ends_;
};

}  // namespace

HttpOptions ServeTarget::http() const {
  HttpOptions options;
  options.timeout = timeout;
  options.bearer = api_key;
  options.cancel = cancel;
  return options;
}

std::string ServeTarget::root() const {
  constexpr std::string_view kVersion = "/v1";
  return url.ends_with(kVersion) ? url.substr(0, url.size() - kVersion.size()) : url;
}

std::string serve_request(const ServeTarget& target, const Prompt& prompt, uint64_t seed,
                          const Json& speculation) {
  Json out;
  if (!target.model.empty()) out["model"] = target.model;
  const std::string& text = prompt.turns.front();
  if (target.chat) {
    out["messages"] = Json::array();
    if (!prompt.system.empty()) {
      out["messages"].push_back({{"role", "system"}, {"content", prompt.system}});
    }
    out["messages"].push_back({{"role", "user"}, {"content", text}});
  } else if (prompt.ids.empty()) {
    out["prompt"] = text;
  } else {
    out["prompt"] = prompt.ids;
  }
  out["max_tokens"] = target.max_tokens;
  out["temperature"] = target.temperature;
  out["seed"] = seed;
  if (target.ignore_eos) out["ignore_eos"] = true;
  out["stream"] = true;
  out["stream_options"] = {{"include_usage", true}};
  if (!speculation.is_null()) out["speculation"] = speculation;
  for (const auto& [key, value] : target.extra.items()) out[key] = value;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ServeSample ask_streaming(HttpClient& client, const ServeTarget& target, const std::string& body) {
  const std::string url = target.url + (target.chat ? "/chat/completions" : "/completions");
  const auto start = steady_now();
  Listener listener(start);
  EventStream events;
  const auto response = client.post(url, body, [&](std::string_view bytes) {
    return events.add(bytes, [&](std::string_view data) { return listener.take(data); });
  });
  if (!response.ok()) {
    if (response.status().code() == StatusCode::kCancelled) return {};
    listener.fail(response.status().message());
  } else if (response->status != 200) {
    listener.fail(fmt::format("{}: HTTP status {}: {}", url, response->status,
                              printable(response->body, kShown)));
  }
  return listener.finish();
}

std::vector<double> arrivals(size_t count, double rate, uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (!std::isfinite(rate)) return times;
  const PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (size_t i = 1; i < count; ++i) {
    const PhiloxBlock random = philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, key);
    times[i] = times[i - 1] - std::log(uniform53(random[0], random[1])) / rate;
  }
  return times;
}

Expected<LoadResult> run_load(const ServeTarget& target, std::span<const std::string> bodies,
                              const ServeLoad& load) {
  std::vector<HttpClient> clients;
  const size_t count = std::min(bodies.size(), static_cast<size_t>(load.concurrency));
  clients.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    AERIE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::create(target.http()));
    clients.push_back(std::move(client));
  }
  return Load(target, bodies, load).run(clients);
}

}  // namespace aerie::measure
