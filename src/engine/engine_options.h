// How a model is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aerie/engine.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/turns.h"
#include "draft/speculative_config.h"
#include "format/model_file.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "parallel/rank_group.h"
#include "tensor/dtype.h"
#include "verify/verifier.h"

namespace aerie {

// What texts will be sampled with: what was asked for; else what the model's makers recommend, if
// that counts; else the usual.
struct ProfileUse {
  std::optional<double> asked;
  bool recommended = true;
  double usual = 0.0;
};

// Makes a model's file, as GGUF would have it, tokenizer included. The pool outlives it.
using FileMaker = std::function<Expected<std::unique_ptr<ModelFile>>(ThreadPool&)>;

// What a model may take of a device's memory, weights, cache and working memory together.
struct DeviceShare {
  int64_t bytes = 0;   // 0: as `share` says
  double share = 0.0;  // of all of its memory; 0: what is free

  bool operator==(const DeviceShare&) const = default;
};

struct EngineOptions {
  std::string model;                      // a GGUF file, a Hugging Face folder, or ORG/REPO
  FileMaker make_file;                    // where no file is read; `model` is its name then
  std::optional<DType> weight_type;       // float matrices become this; none: they stay as they are
  std::string chat_template;              // in the place of the model's own: Jinja, or a file of it
  int context = 0;                        // positions; 0: the model's own, at most default_context
  int default_context = kDefaultContext;  // 0: as many as memory is there for
  int threads = 0;                        // 0: default_threads()
  int draft_threads = 0;                  // of models that draft; 0: the same threads
  int prefill_chunk = 512;                // prompt tokens in a pass
  kernels::Isa isa = kernels::best_isa();
  // Who computes the model (engine/placement/device_choice.h): "auto", "cpu", or a device's name.
  // Once it is open, whoever does.
  std::string device = "auto";
  // Of its layers the last so many are the device's, and the processor has the others. None: all.
  // 0 and "auto": the processor. Once it is open, of a model that was divided, how many they are.
  static constexpr int kLayersThatFit = -1;
  std::optional<int> device_layers;
  DeviceShare device_memory;
  std::string weight_cache;  // a folder for packed weights (model/weight_cache.h); empty: none
  kernels::KvType cache_type = kernels::KvType::kF16;  // a draft model's too
  SpeculativeConfig speculation;
  // A file of `aerie tune` (engine/profile.h): what decides by the costs of passes takes them from
  // it rather than measuring them. One of another model or machine is a warning. Empty: none.
  std::string profile;
  // Set: `speculation` is only for where there is no profile that holds; else it becomes what that
  // chose for one request at a time.
  std::optional<ProfileUse> profile_use;
  std::vector<SpeculativeConfig> more_speculations;  // open too, for requests that pick one
  std::shared_ptr<CustomDrafter> custom_drafter;     // what method "custom" is; null: there is none
  VerifyRule rule = VerifyRule::kExact;
  // Of the weights, the cache and all that drafts, together; 0: what is free.
  int64_t memory_bytes = 0;
  // Of the memory that is left beside the weights, the part that a cache takes whose size nothing
  // else says.
  double cache_share = 0.5;
  // Processes that run the model together; with more than one join_ranks() (engine/rank_setup.h)
  // comes before open_model(), and sets the group.
  int tensor_parallel = 1;
  std::shared_ptr<Group> group;
  // With the other models of the process; null: there are none.
  std::shared_ptr<Turns> turns;
  // Tokens that drafts of settings may have which a service is told of later; 0: it is told of
  // none.
  int draft_room = 0;
  // Generations begin with what earlier ones that began alike left in the cache. Off where times
  // are to be compared.
  bool reuse_prefixes = false;

  static constexpr int kDefaultContext = 4096;
};

// How much goes on at a time.
struct Concurrency {
  int sequences = 1;
  // Of all sequences together; 0: the context of one, and a page. At least that in any case.
  int64_t cache_positions = 0;
  static constexpr int64_t kAll = -1;  // as many as they may need
  static constexpr int64_t kRoom =
      -2;               // the same, but no more than fit into EngineOptions::cache_share
  int pass_rows = 0;    // rows of a pass, at least
  int pass_logits = 0;  // and of these, those that want logits, at least
  int max_taps = -1;    // layers tapped at a time; negative: the model's default
};

// kInvalidArgument, naming the option, for a text that cannot be read.
Expected<EngineOptions> parse_options(const OpenOptions& options);

}  // namespace aerie
