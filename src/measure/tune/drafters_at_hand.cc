#include "measure/tune/drafters_at_hand.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/progress.h"
#include "draft/heads/heads.h"
#include "draft/network/vocabulary_map.h"
#include "engine/engine_draft_host.h"
#include "engine/opened_model.h"
#include "hub/hub_cache.h"
#include "hub/hub_inventory.h"

namespace aerie::measure {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestFolder = 3;
constexpr size_t kMostPlaces = 500;
constexpr int kMostNames = 5000;  // of files and folders that are looked at
constexpr int kMostNodes = 64;

// Where a drafter may be: what opens it, and what people call it.
struct Place {
  std::string path, name;
};

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool is_model_folder(const std::string& folder) {
  return std::ranges::any_of(names_in(folder), [](const std::string& name) {
    return ends_with_any(name, {".safetensors", "config.json"});
  });
}

class Walk {
 public:
  // `model` is not among the places.
  Walk(fs::path model, std::vector<Place>& out) : model_(std::move(model)), out_(out) {}

  void below(const fs::path& folder, int depth) {
    for (const std::string& name : names_in(folder.string())) {
      if (out_.size() >= kMostPlaces || ++seen_ > kMostNames) return;
      const fs::path path = folder / name;
      std::error_code ignored;
      if (name.starts_with('.') || fs::equivalent(path, model_, ignored)) continue;
      if (!is_folder(path.string())) {
        if (name.ends_with(".gguf")) out_.push_back({path.string(), path.string()});
      } else if (is_model_folder(path.string())) {
        out_.push_back({path.string(), path.string()});
      } else if (depth > 1) {
        below(path, depth - 1);
      }
    }
  }

 private:
  fs::path model_;
  std::vector<Place>& out_;
  int seen_ = 0;
};

std::vector<Place> find_places(const std::string& model, const std::string& hub_cache) {
  std::vector<Place> places;
  fs::path path = fs::path(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a folder with a slash at its end
  // What lies beside a snapshot are other states of the same.
  const bool of_hub = !repo_of_path(model).empty();
  if (!of_hub || !is_folder(model)) {
    const fs::path beside = path.has_parent_path() ? path.parent_path() : fs::path(".");
    Walk(path, places).below(beside, kDeepestFolder);
  }
  if (hub_cache.empty()) return places;
  for (const CachedModel& cached : cached_models(hub_cache)) {
    std::error_code ignored;
    if (places.size() >= kMostPlaces) break;
    if (cached.label != "PyTorch" && !fs::equivalent(cached.path, path, ignored)) {
      places.push_back({cached.path, to_string(cached.name)});
    }
  }
  return places;
}

SpeculativeConfig config_of(const Method& method, const std::string& model = "") {
  SpeculativeConfig config;
  config.methods.push_back({&method, {}, {}});
  if (!model.empty()) config.methods[0].texts.emplace(kModelKey, model);
  return config;
}

class Finder {
 public:
  explicit Finder(const OpenedModel& opened) : opened_(opened) {}

  // Of those that are not of files. Some have a use for so many tokens of a round alone.
  std::vector<SpeculativeConfig> own(std::span<const int> depths) const {
    std::vector<SpeculativeConfig> found;
    for (const Method* method : methods()) {
      const bool asks = std::ranges::any_of(method->keys, &MethodKey::required);
      if (asks || method->of_request) continue;
      const SpeculativeConfig usual = config_of(*method);
      std::vector<SpeculativeConfig> variants = variants_of(usual, depths);
      std::erase_if(variants, [&](const SpeculativeConfig& one) { return !opens(one); });
      if (variants.empty() && opens(usual)) variants.push_back(usual);
      std::ranges::move(variants, std::back_inserter(found));
    }
    return found;
  }
  std::optional<SpeculativeConfig> at(const Place& place) const {
    if (is_folder(place.path)) {
      if (auto head = head_at(place)) return head;
    }
    return model_at(place);
  }

 private:
  bool opens(const SpeculativeConfig& config) const {
    std::vector<ModelSource> sources;
    EngineDraftHost host(draft_target(opened_, 1), sources, nullptr, opened_.device.get());
    return config.methods[0].method->make(config.methods[0], host).ok();
  }
  std::optional<SpeculativeConfig> head_at(const Place& place) const {
    const auto file = HeadFile::open(place.path, {{}, opened_.pool.get()});
    if (!file.ok() || (*file)->file_bytes() >= opened_.file().file_bytes()) return {};
    for (const Method* method : methods()) {
      if (!is_head_method(method->name)) continue;
      SpeculativeConfig config = config_of(*method, place.path);
      if (!opens(config)) continue;
      config.methods[0].texts.insert_or_assign(std::string(kModelKey), place.name);
      return config;
    }
    return {};
  }
  // With the same ids, or a part of them.
  std::optional<SpeculativeConfig> model_at(const Place& place) const {
    {
      const auto source = open_draft_source(place.path, {}, *opened_.pool);
      if (!source.ok() || source->file->file_bytes() >= opened_.file().file_bytes()) return {};
      if (source->tokenizer != nullptr &&
          !check_same_vocabulary(opened_.tokenizer(), *source->tokenizer).ok()) {
        return {};
      }
    }
    const auto of_model = std::ranges::find_if(methods(), &Method::of_model);
    SpeculativeConfig config = config_of(**of_model, place.path);
    if (!opens(config)) return {};
    config.methods[0].texts.insert_or_assign(std::string(kModelKey), place.name);
    return config;
  }

  const OpenedModel& opened_;
};

// Settings that go together.
struct Shape {
  struct Number {
    std::string_view key;
    double value = 0.0;
  };
  Number first, second = {};
};
constexpr Shape kShapes[] = {
    // Wider.
    {{"topk", 4}},
    {{"num_matches", 3}},
    {{"suffix_decoding_tree", 1}, {"suffix_decoding_spec_offset", 4}},
    // Only what is likely.
    {{"min_probability", 0.2}},
    {{"suffix_decoding_min_token_prob", 0.3}},
};

// Whether the method has the setting, and it is not given.
bool is_open(const MethodConfig& config, std::string_view key) {
  return config.method->find(key) != nullptr && !config.numbers.contains(key);
}

std::vector<SpeculativeConfig> shapes_of(const SpeculativeConfig& method) {
  std::vector<SpeculativeConfig> all = {method};
  if (method.methods.size() != 1) return all;
  const MethodConfig& config = method.methods[0];
  for (const Shape& shape : kShapes) {
    std::vector<Shape::Number> numbers = {shape.first};
    if (!shape.second.key.empty()) numbers.push_back(shape.second);
    const auto fits = [&](const Shape::Number& number) { return is_open(config, number.key); };
    if (!std::ranges::all_of(numbers, fits)) continue;
    SpeculativeConfig& other = all.emplace_back(method);
    for (const auto& [key, value] : numbers) {
      other.methods[0].numbers.insert_or_assign(std::string(key), value);
    }
  }
  return all;
}

}  // namespace

Expected<std::vector<SpeculativeConfig>> candidates_at_hand(const EngineOptions& engine,
                                                            const std::string& hub_cache,
                                                            std::span<const int> depths) {
  EngineOptions options = engine;
  // Drafters are held against the rows that a pass may have.
  options.speculation = config_of(*methods()[0]);
  options.speculation.set_tokens(kMostNodes);
  options.speculation.open_gate();
  AERIE_ASSIGN_OR_RETURN(const OpenedModel opened, open_model(options, {}));
  const Finder finder(opened);
  std::vector<SpeculativeConfig> all = {auto_speculation()};
  std::ranges::move(finder.own(depths), std::back_inserter(all));
  const std::vector<Place> places = find_places(opened.options.model, hub_cache);
  Progress progress("looking for drafters", static_cast<int64_t>(places.size()));
  for (const Place& place : places) {
    progress.add(1);
    const std::optional<SpeculativeConfig> found = finder.at(place);
    if (!found) continue;
    SpeculativeConfig& within = all.emplace_back(auto_speculation());
    within.methods.push_back(found->methods[0]);
    std::ranges::move(variants_of(*found, depths), std::back_inserter(all));
  }
  return all;
}

std::vector<SpeculativeConfig> variants_of(const SpeculativeConfig& method,
                                           std::span<const int> depths) {
  if (!method.enabled() || method.combination == Combination::kAuto) return {method};
  std::vector<SpeculativeConfig> all;
  for (const SpeculativeConfig& shape : shapes_of(method)) {
    if (method.gives_tokens()) {
      all.push_back(shape);
      continue;
    }
    for (const int depth : depths) all.emplace_back(shape).set_tokens(depth);
  }
  return all;
}

}  // namespace aerie::measure
