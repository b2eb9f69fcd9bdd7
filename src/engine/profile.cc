#include "engine/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/processor.h"
#include "format/fingerprint.h"

namespace aerie {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr size_t kMostBytes = size_t{1} << 20;

// Reads with checks; the first thing that is wrong is kept.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  const Json* member(const Json& object, const char* key) {
    if (object.is_object()) {
      if (const auto found = object.find(key); found != object.end()) return &*found;
    }
    fail("'{}' is missing", key);
    return nullptr;
  }
  double number(const Json& object, const char* key, double least, double most) {
    const Json* value = member(object, key);
    if (value == nullptr) return least;
    if (value->is_number()) {
      const double number = value->get<double>();
      if (number >= least && number <= most) return number;
    }
    fail("'{}' must be a number from {} to {}", key, least, most);
    return least;
  }
  int whole(const Json& object, const char* key, int least, int most) {
    const double value = number(object, key, least, most);
    if (value != std::floor(value)) fail("'{}' must be a whole number", key);
    return static_cast<int>(value);
  }
  std::string text(const Json& object, const char* key) {
    const Json* value = member(object, key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    fail("'{}' must be a text", key);
    return "";
  }
  const Json& list(const Json& object, const char* key) {
    static const Json kEmpty = Json::array();
    const Json* value = member(object, key);
    if (value != nullptr && value->is_array()) return *value;
    fail("'{}' must be a list", key);
    return kEmpty;
  }
  template <typename... Args>
  void fail(fmt::format_string<Args...> what, Args&&... args) {
    if (!status_.ok()) return;
    status_ = invalid_data("{}: this is no profile of `aerie tune`: {}", path_,
                           fmt::format(what, std::forward<Args>(args)...));
  }
  const Status& status() const { return status_; }

 private:
  std::string path_;
  Status status_;
};

ProfileKey read_key(const Json& json, Reader& read) {
  ProfileKey key;
  const std::string model = read.text(json, "model_fingerprint");
  key.model = std::strtoull(model.c_str(), nullptr, 16);
  key.processor = read.text(json, "processor");
  key.threads = read.whole(json, "threads", 1, 1 << 20);
  const std::string isa = read.text(json, "isa"), cache = read.text(json, "cache_type");
  bool known = false;
  for (const kernels::Isa one : kernels::built_isas()) {
    if (isa != kernels::isa_name(one)) continue;
    key.isa = one;
    known = true;
  }
  if (!known) read.fail("'isa' {} is not in this build", isa);
  known = false;
  for (const kernels::KvType one : kernels::kAllKvTypes) {
    if (cache != kernels::kv_type_name(one)) continue;
    key.cache_type = one;
    known = true;
  }
  if (!known) read.fail("'cache_type' {} is unknown", cache);
  if (json.is_object() && json.contains("device")) key.device = read.text(json, "device");
  return key;
}

}  // namespace

ProfileKey profile_key(const ModelFile& model, kernels::Isa isa, int threads,
                       kernels::KvType cache_type) {
  return {fingerprint(model).value_or(0), processor_name(), isa, threads, cache_type, ""};
}

std::string difference(const ProfileKey& profile, const ProfileKey& now) {
  if (profile.model != now.model) return "another model";
  if (profile.processor != now.processor) {
    return fmt::format("{}, now {}", profile.processor, now.processor);
  }
  if (profile.device != now.device) {
    const auto name = [](const std::string& device) {
      return device.empty() ? std::string("the processor") : device;
    };
    return fmt::format("{}, now {}", name(profile.device), name(now.device));
  }
  if (profile.isa != now.isa) {
    return fmt::format("{}, now {}", kernels::isa_name(profile.isa), kernels::isa_name(now.isa));
  }
  if (profile.threads != now.threads) {
    return fmt::format("{} threads, now {}", profile.threads, now.threads);
  }
  if (profile.cache_type != now.cache_type) {
    return fmt::format("cache {}, now {}", kernels::kv_type_name(profile.cache_type),
                       kernels::kv_type_name(now.cache_type));
  }
  return "";
}

const ProfileChoice* choice_for(const Profile& profile, double temperature, int batch) {
  const ProfileChoice* best = nullptr;
  for (const ProfileChoice& choice : profile.choices) {
    if (choice.batch > batch) continue;
    if (best != nullptr) {
      const double nearer =
          std::abs(best->temperature - temperature) - std::abs(choice.temperature - temperature);
      if (nearer < 0 || (nearer == 0 && choice.batch <= best->batch)) continue;
    }
    best = &choice;
  }
  return best;
}

std::vector<std::string> in_words(const Profile& profile) {
  std::vector<std::string> words;
  const std::vector<ProfileChoice>& all = profile.choices;
  for (size_t first = 0; first < all.size();) {
    size_t end = first;
    while (end < all.size() && all[end].temperature == all[first].temperature) ++end;
    std::string text = fmt::format("at temperature {:g}:", all[first].temperature);
    for (size_t i = first; i < end;) {
      // Loads in a row with the same choice.
      size_t next = i;
      while (next < end && all[next].speculate == all[i].speculate) ++next;
      const ProfileChoice& from = all[i];
      const ProfileChoice& to = all[next - 1];
      text += i == first ? " " : "; ";
      if (next < end) {
        text += from.batch == to.batch ? fmt::format("{} at a time: ", from.batch)
                                       : fmt::format("{} to {} at a time: ", from.batch, to.batch);
      } else if (from.batch != to.batch || i > first) {
        text += fmt::format("from {} at a time on: ", from.batch);
      }
      if (from.speculate == "none") {
        text += "decode plainly";
      } else {
        text += fmt::format("{} ({:.2f} times plain decoding", from.speculate, from.speedup);
        text += from.batch == to.batch ? ")" : fmt::format(" to {:.2f})", to.speedup);
      }
      if (!from.in_vain_on.empty()) {
        text += fmt::format(", but decode plainly on {}", fmt::join(from.in_vain_on, ", "));
      }
      if (!from.faster_rule.empty()) {
        text += fmt::format(", or {:.2f} times with --verify {}, which gives other ids for a seed",
                            from.faster_speedup, from.faster_rule);
      }
      i = next;
    }
    words.push_back(std::move(text));
    first = end;
  }
  return words;
}

std::string to_json(const Profile& profile) {
  Json out;
  out["aerie_profile"] = kVersion;
  out["model_fingerprint"] = fmt::format("{:016x}", profile.key.model);
  out["processor"] = profile.key.processor;
  out["isa"] = kernels::isa_name(profile.key.isa);
  out["threads"] = profile.key.threads;
  out["cache_type"] = kernels::kv_type_name(profile.key.cache_type);
  if (!profile.key.device.empty()) out["device"] = profile.key.device;
  out["pass_cost"] = Json::array();
  for (const PassCost::Point& point : profile.pass_cost) {
    out["pass_cost"].push_back({{"rows", point.rows},
                                {"seconds", point.seconds},
                                {"seconds_per_position", point.seconds_per_position}});
    if (point.experts == 0.0) continue;
    out["pass_cost"].back()["experts"] = point.experts;
    out["pass_cost"].back()["seconds_per_expert"] = point.seconds_per_expert;
  }
  out["choices"] = Json::array();
  for (const ProfileChoice& choice : profile.choices) {
    Json item = {{"temperature", choice.temperature}, {"batch", choice.batch},
                 {"speculate", choice.speculate},     {"speedup", choice.speedup},
                 {"measured", choice.measured},       {"why", choice.why}};
    if (!choice.in_vain_on.empty()) item["in_vain_on"] = choice.in_vain_on;
    if (!choice.faster_rule.empty()) {
      item["faster_rule"] = choice.faster_rule;
      item["faster_speedup"] = choice.faster_speedup;
    }
    out["choices"].push_back(std::move(item));
  }
  out["words"] = in_words(profile);
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Expected<Profile> read_profile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && !file.eof())) {
    return not_found("{}: the file cannot be read", path);
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  Reader read(path);
  const Json json = Json::parse(text, nullptr, false);
  if (text.size() > kMostBytes || json.is_discarded()) read.fail("it is not JSON");
  AERIE_RETURN_IF_ERROR(read.status());
  read.whole(json, "aerie_profile", kVersion, kVersion);
  AERIE_RETURN_IF_ERROR(read.status());
  Profile profile;
  profile.key = read_key(json, read);
  for (const Json& item : read.list(json, "pass_cost")) {
    PassCost::Point point;
    point.rows = read.whole(item, "rows", 1, 1 << 20);
    point.seconds = read.number(item, "seconds", 1e-9, 1e6);
    point.seconds_per_position = read.number(item, "seconds_per_position", 0.0, 1e6);
    if (item.is_object() && item.contains("experts")) {
      point.experts = read.number(item, "experts", 0.0, 1e9);
      point.seconds_per_expert = read.number(item, "seconds_per_expert", 0.0, 1e6);
    }
    if (!profile.pass_cost.empty() && profile.pass_cost.back().rows >= point.rows) {
      read.fail("the rows of 'pass_cost' must ascend");
    }
    profile.pass_cost.push_back(point);
  }
  if (profile.pass_cost.empty()) read.fail("'pass_cost' is empty");
  for (const Json& item : read.list(json, "choices")) {
    ProfileChoice choice;
    choice.temperature = read.number(item, "temperature", 0.0, 1e6);
    choice.batch = read.whole(item, "batch", 1, 1 << 20);
    choice.speculate = read.text(item, "speculate");
    choice.speedup = read.number(item, "speedup", 0.0, 1e6);
    const Json* measured = read.member(item, "measured");
    choice.measured = measured != nullptr && measured->is_boolean() && measured->get<bool>();
    choice.why = read.text(item, "why");
    if (item.contains("in_vain_on")) {
      for (const Json& task : read.list(item, "in_vain_on")) {
        if (task.is_string()) choice.in_vain_on.push_back(task.get<std::string>());
      }
    }
    if (item.contains("faster_rule")) {
      choice.faster_rule = read.text(item, "faster_rule");
      choice.faster_speedup = read.number(item, "faster_speedup", 0.0, 1e6);
    }
    profile.choices.push_back(std::move(choice));
  }
  AERIE_RETURN_IF_ERROR(read.status());
  return profile;
}

}  // namespace aerie
