#include "tokenizer/pieces/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/load/onig.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

// Far above what any expression in use takes on a megabyte of one character.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapKib = 256 * 1024;

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;
  std::string shown;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

struct Regex::MatchData {
  explicit MatchData(const Regex& regex)
      : data(pcre2_match_data_create_from_pattern(regex.code_->code, nullptr)) {}
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  ~MatchData() { pcre2_match_data_free(data); }
  pcre2_match_data* data;
};

Regex::Scratch::Scratch(const Regex& regex) : data_(std::make_unique<MatchData>(regex)) {}
Regex::Scratch::Scratch(Scratch&&) noexcept = default;
Regex::Scratch& Regex::Scratch::operator=(Scratch&&) noexcept = default;
Regex::Scratch::~Scratch() = default;

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Expected<Regex> Regex::compile(std::string_view expression) {
  constexpr size_t kMostBytes = 65536;
  if (expression.size() > kMostBytes) {
    return not_supported("the regular expression '{}' is longer than {} bytes",
                         printable(expression, 40), kMostBytes);
  }
  AERIE_ASSIGN_OR_RETURN(const std::string pattern, pcre2_from_onig(expression));
  return compile_for_pcre2(pattern, PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, expression);
}

Expected<Regex> Regex::literal(std::string_view text) {
  return compile_for_pcre2(std::string(text), PCRE2_LITERAL, text);
}

Expected<Regex> Regex::compile_for_pcre2(const std::string& pattern, uint32_t options,
                                         std::string_view shown) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t properties = (options & PCRE2_LITERAL) != 0 ? 0 : PCRE2_UCP;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | properties | options, &error, &offset, context.get());
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return not_supported("the regular expression '{}' does not compile: {}", printable(shown, 200),
                         reinterpret_cast<const char*>(message));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapKib);
  code->shown = printable(shown, 200);
  return Regex(std::move(code));
}

int Regex::find(std::string_view text, size_t from, Scratch& scratch, size_t& begin,
                size_t& end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_data* data = scratch.data_->data;
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    count = pcre2_jit_match(code_->code, subject, text.size(), from, 0, data, code_->context);
  }
  // The interpreter keeps its backtracking points on the heap, where there is more room.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    count = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        data, code_->context);
  }
  if (count == PCRE2_ERROR_NOMATCH) return 0;
  if (count < 0) return -1;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  begin = ends[0];
  end = ends[1];
  return begin <= end ? 1 : 0;
}

bool Regex::Matches::next() {
  while (from_ <= text_.size() && !exhausted_) {
    const size_t last = end_;
    size_t begin = 0, end = 0;
    const int found = regex_->find(text_, from_, *scratch_, begin, end);
    exhausted_ = found < 0;
    if (found <= 0) break;
    if (begin == end && matched_ && end == last) {
      from_ += from_ < text_.size() ? utf8_length(text_[from_]) : 1;
      continue;
    }
    matched_ = true;
    begin_ = begin;
    end_ = from_ = end;
    return true;
  }
  from_ = text_.size() + 1;
  return false;
}

Status Regex::Matches::status() const {
  if (!exhausted_) return {};
  return resource_exhausted(
      "the tokenizer's regular expression '{}' takes too many steps on this text",
      regex_->code_->shown);
}

}  // namespace aerie
