// Flags of vLLM, SGLang, llama.cpp and TensorRT-LLM, and what becomes of each here (docs/flags.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace aerie {

enum class TheirValue : uint8_t {
  kNone,
  kOne,
  kWord,  // may be left out; only on, off, auto, true, false, 0 and 1 are taken for it
};

enum class Fate : uint8_t {
  kAlias,           // the flag `ours` says it; refused where a command lacks that
  kAliasOrIgnored,  // likewise, but ignored there
  kDraft,           // a key of the settings of speculation: `ours`
  kSampling,        // a key of --override-generation-config: `ours`
  kCacheType,       // --cache-type, where there is one like it
  kIgnored,         // it means nothing here, and the output is the same
  kRefused,         // the output would be another one
};

struct TheirFlag {
  std::string_view programs;
  std::string_view names;  // "-c,--ctx-size"; with - for _
  TheirValue value = TheirValue::kOne;
  Fate fate = Fate::kIgnored;
  std::string_view ours = {};
  std::string_view why = {};
  // Values that ask for nothing: the flag is as if it were not there. Commas between them.
  std::string_view neutral = {};
};

// Of servers and of programs that generate a text.
std::span<const TheirFlag> their_flags();
// Of `vllm bench serve`.
std::span<const TheirFlag> their_bench_flags();

// Of every program that takes a model: how llama.cpp names one of a hub.
std::span<const TheirFlag> their_model_names();

// Null: none of `flags` has this name.
const TheirFlag* find_their_flag(std::span<const TheirFlag> flags, std::string_view name);

// Whether `word` is one of `list`, which has commas between them.
bool is_listed(std::string_view list, std::string_view word);

// A table for a page, in Markdown.
std::string flags_table(std::span<const TheirFlag> flags);

}  // namespace aerie
