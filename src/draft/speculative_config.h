// Which drafter, with which settings: vLLM's --speculative-config keys and the short form of
// --speculate.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

enum class DraftMethod : uint8_t { kNone, kNgram, kDraftModel };

struct SpeculativeConfig {
  DraftMethod method = DraftMethod::kNone;
  int num_speculative_tokens = 0;  // 0: the method's default (ngram 10, draft_model 5)
  int prompt_lookup_max = 0;       // ngram: longest n; 0: the default 3
  int prompt_lookup_min = 0;       // ngram: shortest n; 0: the default 1
  std::string model;               // draft_model: the file

  int tokens() const;  // num_speculative_tokens with the default filled in
};

// {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
// or
// {"method": "draft_model", "model": "draft.gguf", "num_speculative_tokens": 5}. As in vLLM,
// "model" alone means method draft_model and "[ngram]" as model means ngram. Unknown keys, wrong
// types, values out of range and keys of another method are kInvalidArgument, naming the key and
// what is allowed.
Expected<SpeculativeConfig> parse_speculative_json(std::string_view json);

// "none", "ngram", "ngram:prompt_lookup_max=4,num_speculative_tokens=8",
// "draft_model:model=draft.gguf,num_speculative_tokens=5": a method and the same keys.
Expected<SpeculativeConfig> parse_speculative_spec(std::string_view spec);

// The short form that parses back to `config`.
std::string to_string(const SpeculativeConfig& config);

}  // namespace aerie
