// Stop strings: text ends before the first match, and text that may still become one is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Takes new text and appends to `out` what can no longer be part of a match. Returns true when a
  // stop string is complete: `out` then has the text before the earliest match, and the rest is
  // dropped. Requires that it has not returned true before.
  bool push(std::string_view text, std::string& out);
  // The end of the stream without a match: appends what was held back.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace aerie
