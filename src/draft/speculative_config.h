// Which drafters, with which settings: vLLM's --speculative-config keys and the short form of
// --speculate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "draft/method.h"

namespace aerie {

// How several drafters work together.
enum class Combination : uint8_t {
  kFirst,  // the first that has an idea drafts
  kMerge,  // all draft, and the trees are merged by token prefix
  kAuto,   // decided in each round by what it costs and what it brings (draft/auto/controller.h)
};

struct SpeculativeConfig {
  std::vector<MethodConfig> methods;  // empty: plain decoding
  Combination combination = Combination::kFirst;

  bool enabled() const { return !methods.empty(); }
  // The most tokens drafted in a round; 0: plain decoding.
  int tokens() const;
  // Whether any method says how many tokens it drafts; sets it for all of them.
  bool gives_tokens() const;
  void set_tokens(int tokens);
  // Whether drafts are made only where they pay (draft/auto/draft_gate.h): for all methods, unless
  // one says that they are made anyway. The controller needs nobody to tell it.
  bool gated() const;
  // Makes drafts whether they pay or not, unless a method says what it wants: for measurements of
  // what a method does by itself.
  void open_gate();
  // The same with that left to the default.
  SpeculativeConfig with_default_gate() const;
  // The type of matrices of all trained heads that do not say it themselves. False if there is no
  // head at all.
  bool set_draft_type(std::string_view type);
};

// "auto": the controller with every method that needs no more than the target.
SpeculativeConfig auto_speculation();

// {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
// or
// {"method": "draft_model", "model": "draft.gguf", "num_speculative_tokens": 5}. As in vLLM,
// "model" alone means method draft_model and "[ngram]" as model means ngram; "none" is plain
// decoding. Several: a list of such objects, or {"combine": "merge", "methods": [...]}; "combine":
// "auto" and {"method": "auto"} are as in the short form. Unknown keys, wrong types, values out of
// range and keys of another method are kInvalidArgument, naming the key and what is allowed.
Expected<SpeculativeConfig> parse_speculative_json(std::string_view json);

// "none", "ngram", "ngram:prompt_lookup_max=4,num_speculative_tokens=8",
// "draft_model:model=draft.gguf,num_speculative_tokens=5": a method and the same keys. Several, the
// cheapest first: "ngram,draft_model:model=draft.gguf"; with "merge" before them their trees are
// merged. "auto" is auto_speculation(), and methods after it are added to it, or take the place of
// its own of that name.
Expected<SpeculativeConfig> parse_speculative_spec(std::string_view spec);

// The short form that parses back to `config`.
std::string to_string(const SpeculativeConfig& config);

}  // namespace aerie
