#include "tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cassert>
#include <optional>

#include "base/utf8.h"

namespace aerie {
namespace {

// Unicode's White_Space. PCRE2's \s also takes U+180E, which Unicode 6.3 removed from it.
#define AERIE_SPACES                                                                               \
  "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
  "3000}"

// Radford et al. 2019, encoder.py.
constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" AERIE_SPACES "\\p{L}\\p{N}]+|[" AERIE_SPACES
    "]+(?![^" AERIE_SPACES "])|[" AERIE_SPACES "]+";

#undef AERIE_SPACES

struct Row {
  std::string_view name;  // of tokenizer.ggml.pre
  std::array<const char*, 2> expressions;
};

constexpr Row kTable[] = {
    {"gpt-2", {kGpt2, nullptr}},
    {"gpt2", {kGpt2, nullptr}},
    // Hugging Face: Digits(individual_digits), then ByteLevel with GPT-2's expression.
    {"smollm", {"\\p{N}", kGpt2}},
};

std::string supported_names() {
  std::string names;
  for (const Row& row : kTable) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

struct Range {
  size_t begin, end;
};

}  // namespace

// A compiled expression.
class PreTokenizer::Regex {
 public:
  static Expected<std::unique_ptr<Regex>> compile(const char* expression) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    std::unique_ptr<Regex> regex(new Regex);
    regex->code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    if (regex->code_ == nullptr) {
      return Status(StatusCode::kInternal,
                    fmt::format("the pre-tokenizer's expression does not compile: error {} at {}",
                                error, offset));
    }
    regex->jit_ = pcre2_jit_compile(regex->code_, PCRE2_JIT_COMPLETE) == 0;
    return regex;
  }
  ~Regex() { pcre2_code_free(code_); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  Match make_match() const { return Match(pcre2_match_data_create_from_pattern(code_, nullptr)); }

  // The first match in valid UTF-8 at or after `from`.
  std::optional<Range> find(std::string_view text, size_t from, pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit_) count = pcre2_jit_match(code_, subject, text.size(), from, 0, match, nullptr);
    // The interpreter keeps its backtracking points on the heap.
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) {
      count = pcre2_match(code_, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          match, nullptr);
    }
    if (count < 0) return std::nullopt;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
    return Range{ends[0], ends[1]};
  }

 private:
  Regex() = default;
  pcre2_code* code_ = nullptr;
  bool jit_ = false;
};

// What a call of split() needs for itself.
struct PreTokenizer::Scratch {
  std::vector<Match> matches;  // one for each stage, since stages nest
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Expected<PreTokenizer> PreTokenizer::create(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name != name) continue;
    PreTokenizer result;
    for (const char* expression : row.expressions) {
      if (expression == nullptr) break;
      AERIE_ASSIGN_OR_RETURN(auto regex, Regex::compile(expression));
      result.stages_.push_back(std::move(regex));
    }
    return result;
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("tokenizer.ggml.pre is '{}', and this build knows only {}; convert the "
                            "model with one of these or use a newer build",
                            name, supported_names()));
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) const {
  Scratch scratch;
  for (const auto& stage : stages_) scratch.matches.push_back(stage->make_match());
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) split_stage(0, text.substr(0, valid), scratch, words);
    if (valid == text.size()) break;
    words.push_back(text.substr(valid, 1));
    text.remove_prefix(valid + 1);
  }
}

void PreTokenizer::split_stage(size_t stage, std::string_view piece, Scratch& scratch,
                               std::vector<std::string_view>& words) const {
  if (stage == stages_.size()) {
    words.push_back(piece);
    return;
  }
  const auto descend = [&](size_t begin, size_t end) {
    if (begin < end) split_stage(stage + 1, piece.substr(begin, end - begin), scratch, words);
  };
  size_t done = 0;
  while (done < piece.size()) {
    const auto found = stages_[stage]->find(piece, done, scratch.matches[stage].get());
    // An empty match would never end; no expression of the table has one.
    if (!found || found->end <= done) break;
    descend(done, found->begin);
    descend(found->begin, found->end);
    done = found->end;
  }
  descend(done, piece.size());
}

}  // namespace aerie
