#include "tools/flags/their_speculation.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "tools/flags/their_flags.h"

namespace aerie {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

struct Name {
  std::string_view theirs;  // in small letters
  std::string_view ours;
};

// Methods, of all programs.
constexpr Name kMethods[] = {
    {"ngram_gpu", "ngram"},
    {"standalone", "draft_model"},
    {"draft_target", "draft_model"},
    {"drafttarget", "draft_model"},
    {"draft", "draft_model"},
    {"draft-simple", "draft_model"},
    {"draft-eagle3", "eagle3"},
    {"draft-mtp", "mtp"},
    {"draft-dflash", "dflash"},
    {"nextn", "mtp"},
    {"sa", "suffix"},
    {"ngram-cache", "ngram"},
    {"ngram-simple", "ngram"},
    {"ngram-map-k", "ngram"},
    {"ngram-map-k4v", "ngram"},
    {"ngram-mod", "ngram"},
    {"mlp-speculator", "mlp_speculator"},
};

// Keys that say the same.
constexpr Name kKeys[] = {
    {"max_draft_len", "num_speculative_tokens"},
    {"num_nextn_predict_layers", "num_speculative_tokens"},
    {"speculative_model", "model"},
    {"speculative_model_dir", "model"},
    {"max_matching_ngram_size", "prompt_lookup_max"},
    {"max_window_size", "window"},
    {"max_ngram_size", "ngram"},
    {"max_verification_set_size", "guesses"},
    {"dynamic_tree_max_topk", "topk"},
};

// Keys that bear on speed alone, or on what is there in one way only.
constexpr std::string_view kIgnoredKeys =
    "draft_tensor_parallel_size,tensor_parallel_size,max_model_len,code_revision,quantization,"
    "enforce_eager,disable_padded_drafter_batch,disable_eagle_block_drop,parallel_drafting,"
    "use_local_argmax_reduction,use_heterogeneous_vocab,num_speculative_tokens_per_batch_size,"
    "moe_backend,attention_backend,kv_cache_dtype,index_share_for_mtp_iteration,"
    "suffix_decoding_max_cached_requests,draft_load_config,draft_sample_method,"
    "enable_adaptive_verification,dspark_draft_topk,speculative_token_tree,disable_by_batch_size,"
    "disable_logprobs,disable_mqa_scorer,use_dynamic_tree,max_batch_size,eagle_choices,"
    "medusa_choices,num_medusa_heads,num_eagle_layers,max_non_leaves_per_layer,eagle3_one_model,"
    "eagle3_layers_to_capture,is_public_pool,is_keep_all,is_use_oldest,use_sa_spec,"
    "sa_spec_threshold,max_concurrency,load_format,mtp_eagle_one_model,relaxed_topk,relaxed_delta,"
    "use_mtp_vanilla,allow_advanced_sampling,acceptance_window";

// Keys of acceptance, and the values with which it is lossless.
constexpr Name kAcceptance[] = {
    {"acceptance_method", "rejection_sampler"},
    {"draft_token_acceptance_method", "rejection_sampler"},
    {"rejection_sample_method", "standard,block,strict,probabilistic"},
    {"synthetic_acceptance_rates", ""},
    {"synthetic_acceptance_length", ""},
    {"posterior_threshold", ""},
    {"posterior_alpha", ""},
    {"use_relaxed_acceptance_for_thinking", "false"},
    {"greedy_sampling", "true"},
};

const Name* find(std::span<const Name> names, std::string_view theirs) {
  const auto found = std::ranges::find(names, theirs, &Name::theirs);
  return found == names.end() ? nullptr : &*found;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// What the folder says, as vLLM has it; else what the name says.
std::string method_of_model(const std::string& model) {
  std::string type;
  if (std::ifstream file(model + "/config.json"); file) {
    const Json config = Json::parse(file, nullptr, false);
    for (const char* key : {"speculators_model_type", "model_type"}) {
      if (type.empty() && config.is_object() && config.contains(key)) type = text_of(config[key]);
    }
  }
  const std::string word = lower(type + " " + model.substr(model.find_last_of('/') + 1));
  for (const std::string_view method :
       {"dspark", "dflash", "eagle3", "eagle", "medusa", "mlp_speculator"}) {
    if (word.find(method) != std::string::npos) return std::string(method);
  }
  if (word.find("nextn") != std::string::npos) return "mtp";
  if (word.find("accelerator") != std::string::npos) return "mlp_speculator";
  return "draft_model";
}

// "" if nothing names one.
std::string our_method(const Json& theirs, const std::string& model) {
  std::string name;
  for (const char* key : {"method", "decoding_type", "speculative_algorithm", "spec_type"}) {
    if (theirs.contains(key)) name = text_of(theirs[key]);
  }
  name = lower(name);
  if (const Name* method = find(kMethods, name)) name = method->ours;
  if (name.ends_with("_mtp")) name = "mtp";
  // SGLang finds the modules in the model itself.
  if (name == "eagle" && model.empty() && theirs.contains("speculative_algorithm")) name = "mtp";
  // EAGLE-3 and modules of models go by this name, too.
  if (name == "eagle" && !model.empty()) {
    const std::string found = method_of_model(model);
    if (found == "eagle3" || found == "mtp") name = found;
  }
  if (name.empty() && !model.empty() && model != "[ngram]") name = method_of_model(model);
  return name;
}

Status check_acceptance(const std::string& key, const Json& value) {
  const Name* rule = find(kAcceptance, key);
  if (rule == nullptr || value.is_null() || is_listed(rule->ours, text_of(value))) return {};
  return invalid_argument(
      "'{}': {}: drafts are kept only where the target would have said the same; leave it out", key,
      text_of(value));
}

// The number of nodes where a tree's depth is given beside it.
void take_tree(const Json& theirs, Json& ours) {
  if (!theirs.contains("max_total_draft_tokens")) return;
  if (ours.contains("num_speculative_tokens")) ours["num_steps"] = ours["num_speculative_tokens"];
  ours["num_speculative_tokens"] = theirs["max_total_draft_tokens"];
}

// What SGLang counts otherwise where there is no network.
void take_lookup(Json& ours) {
  if (const auto tokens = ours.find("speculative_num_draft_tokens"); tokens != ours.end()) {
    if (tokens->is_number_integer()) ours["num_speculative_tokens"] = tokens->get<int64_t>() - 1;
    ours.erase("speculative_num_draft_tokens");
  }
  ours.erase("speculative_num_steps");
  ours.erase("speculative_eagle_topk");
  if (const auto matches = ours.find("num_matches"); matches != ours.end()) {
    constexpr int64_t kMost = 16;
    if (matches->is_number_integer()) *matches = std::min(matches->get<int64_t>(), kMost);
  }
}

// Several of llama.cpp's types, the cheapest first.
Expected<Json> from_types(const Json& theirs, std::vector<std::string>& ignored) {
  Json list = Json::array();
  std::string types = text_of(theirs["spec_type"]);
  while (!types.empty()) {
    const size_t comma = std::min(types.find(','), types.size());
    Json one = theirs;
    one["spec_type"] = types.substr(0, comma);
    const bool lookup = types.starts_with("ngram");
    if (lookup) one.erase("model");
    if (!lookup) one.erase("prompt_lookup_max");
    AERIE_ASSIGN_OR_RETURN(Json ours, to_our_speculation(one, ignored));
    list.insert(lookup ? list.begin() : list.end(), std::move(ours));
    types.erase(0, comma + 1);
  }
  return list;
}

}  // namespace

Expected<Json> to_our_speculation(const Json& theirs, std::vector<std::string>& ignored) {
  if (!theirs.is_object() || theirs.contains("methods")) return theirs;
  const std::string types = theirs.contains("spec_type") ? text_of(theirs["spec_type"]) : "";
  if (types.find(',') != std::string::npos) return from_types(theirs, ignored);
  Json ours = Json::object();
  for (const auto& [given, value] : theirs.items()) {
    const std::string key = given == "dynamic_tree_max_topK" ? "dynamic_tree_max_topk" : given;
    AERIE_RETURN_IF_ERROR(check_acceptance(key, value));
    const Name* same = find(kKeys, key);
    if (is_listed("method,decoding_type,speculative_algorithm,spec_type,max_total_draft_tokens,"
                  "revision",
                  key)) {
      continue;
    }
    if (find(kAcceptance, key) != nullptr || is_listed(kIgnoredKeys, key) || value.is_null()) {
      if (!value.is_null()) ignored.push_back(given);
    } else if (same != nullptr) {
      // The length of a draft goes before the number of modules.
      if (key == "num_nextn_predict_layers" && theirs.contains("max_draft_len")) continue;
      ours[std::string(same->ours)] = value;
    } else {
      ours[key] = value;
    }
  }
  take_tree(theirs, ours);
  const std::string model = ours.contains("model") ? text_of(ours["model"]) : "";
  const std::string method = our_method(theirs, model);
  // A draft model is used where there is one, whatever there is for want of it.
  if (!method.empty() && !(method == "none" && !model.empty())) ours["method"] = method;
  if (method == "none" && !model.empty()) ours["method"] = method_of_model(model);
  if (method == "ngram" || method == "suffix") take_lookup(ours);
  // vLLM names the model itself, in which its modules are.
  if (method == "mtp" && theirs.contains("method")) ours.erase("model");
  if (theirs.contains("revision") && !model.empty() && text_of(theirs["revision"]) != "main") {
    ours["model"] = model + "@" + text_of(theirs["revision"]);
  }
  return ours;
}

}  // namespace aerie
