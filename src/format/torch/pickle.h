// Pickles without the program in them. A pickle is code for a small machine, and what it may call
// is what makes it dangerous; here it builds numbers, strings, lists, tuples and dicts, and a call
// becomes a value that names the function and its arguments. Nothing is ever called or imported.
//
// A pickle is hostile until it is read: lengths, stack, memo and nesting are checked. Values are a
// graph, as in Python: one may be in several containers, and a container in itself, so whoever
// walks them limits depth and steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

inline constexpr size_t kMaxPickleBytes = size_t{16} << 20;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInteger,  // of at most 64 bits
  kFloat,
  kString,  // valid UTF-8
  kBytes,
  kList,
  kTuple,
  kDict,        // also collections.OrderedDict
  kGlobal,      // the name of a type
  kCall,        // of the function that `text` names; items are the arguments
  kPersistent,  // what lies outside of the pickle; the item is its id
};

using PickleId = uint32_t;

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  uint32_t container = 0;  // for Pickle
  union {
    int64_t integer = 0;  // kInteger; kBool: 0 or 1
    double number;        // kFloat
  };
  std::string_view text;  // kString, kBytes: of the pickle; kGlobal, kCall: "torch.FloatStorage"
};

class Pickle {
 public:
  // Reads one pickle from the start of `bytes`, which must outlive the object. `name` is for
  // messages.
  //
  // kInvalidData if it is broken or larger than kMaxPickleBytes. kUnsupported, naming it, for a
  // global that is not one of those that the tensors of PyTorch and their dicts are made of, and
  // for instructions that files of tensors do not need. Uses memory of up to 100 times the bytes
  // that are read.
  static Expected<Pickle> parse(std::span<const std::byte> bytes, const std::string& name);

  size_t bytes() const { return bytes_; }  // that it takes
  size_t size() const { return values_.size(); }
  PickleId root() const { return root_; }
  const PickleValue& at(PickleId id) const { return values_[id]; }
  // Of a list, tuple, call or persistent id; of a dict keys and values in turn, in the order in
  // which they were set; a key may be there several times. Empty for others.
  std::span<const PickleId> items(PickleId id) const;

 private:
  friend class Unpickler;
  std::deque<PickleValue> values_;
  std::deque<std::vector<PickleId>> containers_;
  PickleId root_ = 0;
  size_t bytes_ = 0;
};

}  // namespace aerie
