// Stop strings: text ends before the first match, and text that may still become one is held back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// The result does not depend on how the text is cut into pushes: the match that is complete first
// counts, and of those that are complete with the same byte the longest. Copies go on from the same
// state.
class StopStrings {
 public:
  // Empty strings are ignored. Takes some 24 bytes for each of theirs.
  explicit StopStrings(const std::vector<std::string>& stops);

  // Takes new text and appends to `out` what can no longer be part of a match. Returns true when a
  // stop string is complete: `out` then has the text before the match, and the rest is dropped.
  // Requires that it has not returned true before. Linear in the text, however many stop strings
  // there are.
  bool push(std::string_view text, std::string& out);
  // The one that is complete; empty before that.
  const std::string& matched() const { return matched_; }
  // The end of the stream without a match: appends what was held back.
  void finish(std::string& out);

 private:
  // Aho and Corasick's automaton: a node is a prefix of stop strings, and the state is the longest
  // one that the input ends with.
  struct Node {
    uint32_t first_child = 0, sibling = 0;  // 0: none
    uint32_t fail = 0;                      // the longest other one that this one ends with
    uint32_t length = 0;                    // of the prefix
    uint32_t complete = 0;  // length of the longest stop string that it ends with; 0: none
    char c = 0;             // its last byte
  };
  uint32_t child(uint32_t node, char c) const;
  uint32_t step(uint32_t node, char c) const;
  void add(std::string_view stop);
  void link();

  std::vector<Node> nodes_ = {Node()};
  uint32_t state_ = 0;
  std::string held_;
  std::string matched_;
};

}  // namespace aerie
