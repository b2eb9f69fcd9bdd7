// Regular expressions over UTF-8, with bounded memory and a limit on the steps of a match.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

// Immutable: safe to share between threads; each thread needs a Scratch of its own.
class Regex {
 public:
  struct Code;
  struct MatchData;

  // What matching needs for itself. Belongs to one Regex.
  class Scratch {
   public:
    explicit Scratch(const Regex& regex);
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class Regex;
    std::unique_ptr<MatchData> data_;
  };

  // An expression in Oniguruma's syntax (Ruby's), as in tokenizer.json. kUnsupported, naming it, if
  // it cannot be matched as Oniguruma would.
  static Expected<Regex> compile(std::string_view expression);
  // The text itself.
  static Expected<Regex> literal(std::string_view text);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The matches in a text from left to right, as Oniguruma's bindings iterate: they do not overlap,
  // and an empty one does not stand where the match before it ends.
  class Matches {
   public:
    // `text` is valid UTF-8.
    Matches(const Regex& regex, std::string_view text, Scratch& scratch)
        : regex_(&regex), scratch_(&scratch), text_(text) {}
    // False at the end, and if matching took too many steps: see status().
    bool next();
    size_t begin() const { return begin_; }
    size_t end() const { return end_; }
    // kResourceExhausted after too many steps.
    Status status() const;

   private:
    const Regex* regex_;
    Scratch* scratch_;
    std::string_view text_;
    size_t from_ = 0;
    size_t begin_ = 0, end_ = 0;
    bool matched_ = false;
    bool exhausted_ = false;
  };

 private:
  static Expected<Regex> compile_for_pcre2(const std::string& pattern, uint32_t options,
                                           std::string_view shown);
  explicit Regex(std::unique_ptr<Code> code);
  // 1: found, 0: there is none, -1: too many steps.
  int find(std::string_view text, size_t from, Scratch& scratch, size_t& begin, size_t& end) const;

  std::unique_ptr<Code> code_;
};

}  // namespace aerie
