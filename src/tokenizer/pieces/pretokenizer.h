// Cuts text into the words that the model sees one by one.
//
// A pre-tokenizer is a list of steps, each applied to every piece that the one before it left. The
// steps are Hugging Face's, under their names.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/pieces/regex.h"

namespace aerie {

// What becomes of the matches of a Split, and of what lies between them.
enum class SplitBehavior : uint8_t {
  kRemoved,             // matches go
  kIsolated,            // matches are pieces of their own
  kMergedWithPrevious,  // they belong to the piece before them
  kMergedWithNext,      // or behind them
  kContiguous,          // neighbouring matches are one piece
};

enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };

// Immutable after it is built: safe to share between threads.
class PreTokenizer {
 public:
  // `invert`: what lies between the matches counts as match, and the other way round.
  void add_split(Regex pattern, SplitBehavior behavior, bool invert = false);
  // GPT-2's spelling of bytes, for steps that see it.
  void add_byte_names();
  // A space before every piece that does not begin with one.
  void add_space();
  // Spaces become `replacement`; pieces that do not begin with it get one as `scheme` says, and
  // with `split` they are cut before each.
  void add_metaspace(std::string replacement, PrependScheme scheme, bool split);

  size_t steps() const { return steps_.size(); }

  // What splitting needs for itself; `texts` keeps words that are no part of the text.
  struct Scratch {
    std::vector<Regex::Scratch> matches;  // one for each step that has a pattern, since steps nest
    std::deque<std::string> texts;
  };
  Scratch make_scratch() const;

  struct Where {
    bool first;      // the text stands at the very beginning of what is encoded
    bool continues;  // a byte that is not UTF-8 stands before it: no space is put there
  };
  // Appends the words of `text`, which is valid UTF-8, none of them empty. They point into `text`
  // or into scratch.texts. kResourceExhausted if a regular expression takes too many steps.
  Status split(std::string_view text, Where where, Scratch& scratch,
               std::vector<std::string_view>& words) const;

 private:
  enum class Kind : uint8_t { kSplit, kByteNames, kSpace, kMetaspace };
  struct Step {
    Kind kind;
    std::unique_ptr<Regex> pattern;
    size_t match = 0;  // its place in Scratch::matches
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    std::string replacement;
    PrependScheme scheme = PrependScheme::kNever;
    bool cut = false;
  };
  struct Piece {
    size_t begin, end;
    bool match;
  };
  struct Run;
  Status descend(size_t step, std::string_view piece, Where where, Run& run) const;
  Status split_by(size_t step, std::string_view piece, Where where, Run& run) const;
  Status metaspace(size_t step, std::string_view piece, Where where, Run& run) const;
  static void join(SplitBehavior behavior, std::vector<Piece>& pieces);

  std::vector<Step> steps_;
  size_t patterns_ = 0;
};

}  // namespace aerie
