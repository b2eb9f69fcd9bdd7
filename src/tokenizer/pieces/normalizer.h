// What happens to a text before it is cut into words: a list of steps, one after the other.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

// Where in the text between two special tokens a piece of it stands. The pieces of a text are cut
// apart by bytes that are not UTF-8.
struct Place {
  bool begins = true;  // nothing stands before it
  bool ends = true;    // nothing stands behind it
};

// Immutable: safe to share between threads.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Appends to `out`, which is empty, what becomes of `text`, which is valid UTF-8 and not empty.
  // What comes out is valid UTF-8. kResourceExhausted if a regular expression takes too many steps.
  virtual Status apply(std::string_view text, Place place, std::string& out) const = 0;
};

class Normalizer {
 public:
  void add(std::unique_ptr<NormalizerStep> step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }

  // What becomes of `text`, valid UTF-8: a view of it, or of `buffer`. kResourceExhausted, too, for
  // a text that grows beyond measure.
  Expected<std::string_view> apply(std::string_view text, Place place, std::string& buffer) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace aerie
