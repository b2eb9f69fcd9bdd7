// Stop strings: text ends before the first match, and text that may still become one is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// The result does not depend on how the text is cut into pushes: the match that is complete first
// counts, and of those that are complete with the same byte the longest. Copies go on from the same
// state.
class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Takes new text and appends to `out` what can no longer be part of a match. Returns true when a
  // stop string is complete: `out` then has the text before the match, and the rest is dropped.
  // Requires that it has not returned true before. Linear in the text, for each stop string.
  bool push(std::string_view text, std::string& out);
  // The one that is complete; empty before that.
  const std::string& matched() const { return matched_; }
  // The end of the stream without a match: appends what was held back.
  void finish(std::string& out);

 private:
  // Knuth, Morris and Pratt's automaton: `matched` is the length of the longest prefix of `text`
  // that the input ends with; borders[n] is the longest proper prefix of text[0..n] that also ends
  // it.
  struct Stop {
    std::string text;
    std::vector<size_t> borders;
    size_t matched = 0;
    void advance(char c);
  };
  std::vector<Stop> stops_;
  std::string held_;
  std::string matched_;
};

}  // namespace aerie
