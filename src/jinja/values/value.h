// What a template computes with: Python's values, as far as Jinja shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie::jinja {

// Python's integers have no bounds; 128 bits hold what JSON's 64 (signed or not) lead to, and what
// does not fit is an error instead of a wrong number.
__extension__ typedef __int128 Int;  // NOLINT(modernize-use-using): needs __extension__

enum class Kind : uint8_t {
  kAbsent,  // an argument that was not given; no expression has it
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,
  kDict,
  kNamespace,
  kCallable,
  kLoop,
  kCycler,
};

// A string of Unicode characters as UTF-8. Bytes that are not UTF-8 count as one character each
// maximal invalid part and are passed on as they are. Immutable.
struct Text {
  struct Borrow {};
  explicit Text(std::string bytes);      // owns them
  Text(Borrow, std::string_view bytes);  // does not own them: they outlive this object
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string owned;
  std::string_view view;
  bool ascii;         // every character is one byte
  bool safe = false;  // marked as HTML: what is added to it is escaped
};

struct Sequence;
struct Dict;
struct Callable;
struct Loop;
struct Cycler;

// A small handle; what it points to belongs to the Runtime (or, for literals, to the template) and
// lives as long as that.
struct Value {
  Kind kind = Kind::kUndefined;
  // kUndefined: the kind of value that has no such attribute; kAbsent for a variable.
  Kind owner = Kind::kAbsent;
  union {
    bool boolean;
    Int integer;
    double real;
    const Text* text;  // kUndefined: the name that is not defined; may be null
    Sequence* sequence;
    Dict* dict;  // kDict, kNamespace
    Callable* callable;
    Loop* loop;
    Cycler* cycler;
  };

  Value() : text(nullptr) {}
  static Value absent() { return Value(Kind::kAbsent); }
  static Value none() { return Value(Kind::kNone); }
  static Value of(bool it) { return with(Kind::kBool, &Value::boolean, it); }
  static Value of(Int it) { return with(Kind::kInt, &Value::integer, it); }
  static Value of(int64_t it) { return of(Int{it}); }
  static Value of(size_t it) { return of(static_cast<Int>(it)); }
  static Value of(double it) { return with(Kind::kFloat, &Value::real, it); }
  static Value of(const Text* it) { return with(Kind::kText, &Value::text, it); }
  static Value of(Sequence* it) { return with(Kind::kSequence, &Value::sequence, it); }
  static Value of(Dict* it) { return with(Kind::kDict, &Value::dict, it); }
  static Value of_namespace(Dict* it) { return with(Kind::kNamespace, &Value::dict, it); }
  static Value of(Callable* it) { return with(Kind::kCallable, &Value::callable, it); }
  static Value of(Loop* it) { return with(Kind::kLoop, &Value::loop, it); }
  static Value of(Cycler* it) { return with(Kind::kCycler, &Value::cycler, it); }
  static Value undefined(const Text* name = nullptr, Kind owner = Kind::kAbsent) {
    Value value = with(Kind::kUndefined, &Value::text, name);
    value.owner = owner;
    return value;
  }

  bool is(Kind other) const { return kind == other; }
  bool is_absent() const { return kind == Kind::kAbsent; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_text() const { return kind == Kind::kText; }
  bool is_integral() const { return kind == Kind::kBool || kind == Kind::kInt; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  bool is_list() const;
  bool is_tuple() const;
  bool is_generator() const;
  bool is_indexable() const;  // a list, tuple or range, which can be sliced too
  Int as_int() const { return kind == Kind::kBool ? Int{boolean} : integer; }  // is_integral()
  double as_double() const {                                                   // is_number()
    return kind == Kind::kFloat ? real : static_cast<double>(as_int());
  }
  std::string_view view() const { return text->view; }  // is_text()

 private:
  explicit Value(Kind what) : kind(what), text(nullptr) {}
  template <typename T>
  static Value with(Kind kind, T Value::*member, T it) {
    Value value(kind);
    value.*member = it;
    return value;
  }
};

// Everything with items in order. Views of a dict and ranges are made whole when they are asked
// for.
struct Sequence {
  enum class Flavour : uint8_t {
    kList,
    kTuple,
    kGroup,  // a tuple of groupby: (grouper, list)
    kRange,
    kKeys,
    kValues,
    kItems,
    kGenerator,  // can be gone through once
  };
  Flavour flavour = Flavour::kList;
  std::vector<Value> items;
  size_t taken = 0;   // kGenerator: how many were handed out
  std::string label;  // kRange: how it prints
};

// In the order of insertion. Filled by Runtime, which knows which keys can be.
struct Dict {
  using Entry = std::pair<Value, Value>;
  std::vector<Entry> entries;
  // Where the entries with text keys are, once there are more than a few: a lookup costs
  // O(log n) whatever the keys are.
  std::map<std::string_view, size_t> index;
};

struct Cycler {
  std::vector<Value> items;
  size_t position = 0;
};

inline bool Value::is_list() const {
  return is(Kind::kSequence) && sequence->flavour == Sequence::Flavour::kList;
}
inline bool Value::is_tuple() const {
  return is(Kind::kSequence) && (sequence->flavour == Sequence::Flavour::kTuple ||
                                 sequence->flavour == Sequence::Flavour::kGroup);
}
inline bool Value::is_generator() const {
  return is(Kind::kSequence) && sequence->flavour == Sequence::Flavour::kGenerator;
}
inline bool Value::is_indexable() const {
  return is(Kind::kSequence) && sequence->flavour <= Sequence::Flavour::kRange;
}

// Python's name for the type of a value, as error messages show it.
std::string_view type_name(const Value& value);
std::string_view type_name(Kind kind);
std::string_view type_name(Sequence::Flavour flavour);

}  // namespace aerie::jinja
