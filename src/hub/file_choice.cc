#include "hub/file_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/errors.h"
#include "format/json.h"
#include "format/text.h"
#include "hub/hub_name.h"

namespace aerie {
namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kIndex = ".safetensors.index.json";

// Nearest to Q4_K_M first: of its size and better, then larger, then smaller.
constexpr std::array<std::string_view, 35> kQuantisations = {
    "Q4_K_M", "Q4_K_L", "Q4_K_XL", "Q4_K_S", "Q4_K",  "Q4_1",  "IQ4_NL", "IQ4_XS",  "Q4_0",
    "MXFP4",  "NVFP4",  "Q5_K_M",  "Q5_K_S", "Q5_K",  "Q5_1",  "Q5_0",   "Q6_K",    "Q8_0",
    "Q3_K_L", "Q3_K_M", "Q3_K_S",  "Q3_K",   "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS", "BF16",
    "F16",    "FP16",   "F32",     "Q2_K",   "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS"};

constexpr std::array<std::string_view, 13> kSidecars = {
    "config.json",       "generation_config.json",
    "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model",   "special_tokens_map.json",
    "added_tokens.json", "vocab.json",
    "vocab.txt",         "merges.txt",
    "spiece.model",      "chat_template.jinja",
    "chat_template.json"};
constexpr std::array<std::string_view, 5> kTokenizers = {"tokenizer.json", "tokenizer.model",
                                                         "vocab.json", "vocab.txt", "spiece.model"};

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
  return out;
}

bool is_at_top(std::string_view name) {
  return name.find('/') == std::string_view::npos;
}

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string_view base_name(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

// A GGUF file, or all parts of a split one.
struct GgufModel {
  std::string prefix;  // of the name, before ".gguf" or "-00001-of-00003.gguf"
  std::vector<std::string> files;
  int64_t parts = 1;
};

// What stands before "-00001-of-00003" in a name without its ending, and the number of parts.
std::optional<std::pair<std::string_view, int64_t>> split_part(std::string_view stem) {
  constexpr size_t kDigits = 5;
  constexpr size_t kTail = 2 * kDigits + 5;  // "-" and "-of-"
  if (stem.size() <= kTail) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  const std::string_view count = tail.substr(kTail - kDigits);
  int64_t parts = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), parts);
  if (tail[0] != '-' || tail.substr(1 + kDigits, 4) != "-of-" || error != std::errc() ||
      end != count.data() + count.size() || parts < 1) {
    return std::nullopt;
  }
  return std::pair(stem.substr(0, stem.size() - kTail), parts);
}

// Those that are whole, the shortest names first.
std::vector<GgufModel> gguf_models(std::span<const std::string> names) {
  std::map<std::string, GgufModel> by_name;
  for (const std::string& name : names) {
    if (!upper(name).ends_with(".GGUF")) continue;
    const std::string base = upper(base_name(name));
    if (base.find("MMPROJ") != std::string::npos || base.find("IMATRIX") != std::string::npos) {
      continue;
    }
    const std::string_view stem = std::string_view(name).substr(0, name.size() - kGguf.size());
    const auto split = split_part(stem);
    const std::string prefix(split ? split->first : stem);
    GgufModel& model = by_name[split ? fmt::format("{}-of-{}", prefix, split->second) : prefix];
    model.prefix = prefix;
    model.parts = split ? split->second : 1;
    model.files.push_back(name);
  }
  std::vector<GgufModel> models;
  for (auto& [name, model] : by_name) {
    if (static_cast<int64_t>(model.files.size()) != model.parts) continue;
    std::ranges::sort(model.files);
    models.push_back(std::move(model));
  }
  std::ranges::stable_sort(models, {}, [](const GgufModel& model) { return model.prefix.size(); });
  return models;
}

// Whether `word` stands in a name by itself: Q4_K is not in x-Q4_K_M.
bool says(std::string_view name, const std::string& word) {
  const std::string text = upper(name);
  const auto joins = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !joins(text[at - 1])) && (end == text.size() || !joins(text[end]))) return true;
  }
  return false;
}

const GgufModel* with_quantisation(std::span<const GgufModel> models, std::string_view name) {
  const std::string word = upper(name);
  const auto found = std::ranges::find_if(
      models, [&](const GgufModel& model) { return says(model.prefix, word); });
  return found == models.end() ? nullptr : &*found;
}

FileChoice of_gguf(const GgufModel& model) {
  return {model.files, model.files.front(), ""};
}

// What somebody could ask for, for messages.
std::string offer(std::span<const std::string> names) {
  std::vector<std::string> shown;
  for (const GgufModel& model : gguf_models(names)) {
    shown.push_back(printable(model.files.front()));
  }
  if (shown.empty()) {
    for (const std::string& name : names) {
      if (is_weights_file(name) && is_at_top(name)) shown.push_back(printable(name));
    }
  }
  if (shown.empty()) return "it has neither GGUF files nor safetensors at its top";
  constexpr size_t kShown = 24;
  const bool cut = shown.size() > kShown;
  if (cut) shown.resize(kShown);
  return fmt::format("it has {}{}", fmt::join(shown, ", "), cut ? ", ..." : "");
}

bool is_sidecar(std::string_view name) {
  return std::ranges::find(kSidecars, name) != kSidecars.end() ||
         (is_at_top(name) && name.ends_with(".tiktoken")) ||
         (name.starts_with("additional_chat_templates/") && name.ends_with(".jinja"));
}

// Model's, or of a repository without an index or model.safetensors all that are there.
std::vector<std::string> safetensors(std::span<const std::string> names) {
  if (contains(names, "model.safetensors")) return {"model.safetensors"};
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const bool fits = name.ends_with(kSafetensors) || name.ends_with(kIndex);
    if (is_at_top(name) && fits && !name.starts_with("consolidated")) out.push_back(name);
  }
  return out;
}

// What training leaves beside a model is none of it.
std::vector<std::string> torch_files(std::span<const std::string> names) {
  constexpr std::array<std::string_view, 4> kOthers = {"training_args", "optimizer", "scheduler",
                                                       "rng_state"};
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const bool other =
        std::ranges::any_of(kOthers, [&](auto start) { return name.starts_with(start); });
    const bool fits = name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
                      name.ends_with(".bin.index.json");
    if (is_at_top(name) && fits && !other && !name.starts_with("consolidated")) out.push_back(name);
  }
  return out;
}

FileChoice folder_of(std::vector<std::string> weights, std::span<const std::string> names) {
  FileChoice choice{std::move(weights), "", ""};
  std::ranges::copy_if(names, std::back_inserter(choice.files), is_sidecar);
  std::ranges::sort(choice.files);
  return choice;
}

Expected<FileChoice> picked(std::span<const std::string> names, const std::string& pick) {
  const std::vector<GgufModel> models = gguf_models(names);
  for (const std::string& name : names) {
    if (name != pick && base_name(name) != pick) continue;
    for (const GgufModel& model : models) {
      if (contains(model.files, name)) return of_gguf(model);
    }
    if (!is_weights_file(name)) {
      return invalid_argument("{} holds no weights; {}", pick, offer(names));
    }
    FileChoice choice = folder_of({name}, names);
    choice.open = name;
    return choice;
  }
  if (const GgufModel* model = with_quantisation(models, pick)) return of_gguf(*model);
  return not_found("there is no {}; {}", printable(pick), offer(names));
}

FileChoice default_gguf(std::span<const GgufModel> models) {
  for (const std::string_view name : kQuantisations) {
    const GgufModel* model = with_quantisation(models, name);
    if (model == nullptr) continue;
    FileChoice choice = of_gguf(*model);
    if (models.size() > 1) {
      choice.note = fmt::format("took {} ({})", name, printable(choice.open));
    }
    return choice;
  }
  FileChoice choice = of_gguf(models.front());
  if (models.size() > 1) choice.note = fmt::format("took {}", printable(choice.open));
  return choice;
}

bool has_shards(const std::string& folder, const std::string& index,
                std::span<const std::string> files) {
  const Expected<Json> json = read_json(folder + "/" + index);
  if (!json.ok()) return false;
  const auto view = JsonObject::view(*json, index);
  if (!view.ok()) return false;
  const auto map = view->object("weight_map");
  if (!map.ok()) return false;
  std::set<std::string> shards;
  for (const Json& shard : map->json()) {
    if (shard.is_string()) shards.insert(shard.get<std::string>());
  }
  return std::ranges::all_of(shards, [&](const auto& shard) { return contains(files, shard); });
}

}  // namespace

std::span<const std::string_view> default_quantisations() {
  return kQuantisations;
}

Expected<FileChoice> choose_files(std::span<const std::string> names, const std::string& pick) {
  if (!pick.empty()) return picked(names, pick);
  std::vector<std::string> weights = safetensors(names);
  const bool is_folder_model = !weights.empty() && contains(names, "config.json");
  const std::vector<GgufModel> models = gguf_models(names);
  if (!is_folder_model && !models.empty()) return default_gguf(models);
  if (weights.empty()) weights = torch_files(names);
  if (weights.empty()) return not_found("there is no model that can be read; {}", offer(names));
  return folder_of(std::move(weights), names);
}

bool is_complete(const FileChoice& choice, const std::string& folder, bool is_model) {
  if (!choice.open.empty()) return true;
  for (const std::string& name : choice.files) {
    if (name.ends_with(kIndex) && !has_shards(folder, name, choice.files)) return false;
  }
  if (!contains(choice.files, "config.json")) return !is_model;
  return !is_model || std::ranges::any_of(kTokenizers, [&](std::string_view name) {
    return contains(choice.files, name);
  });
}

}  // namespace aerie
