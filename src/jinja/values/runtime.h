// One rendering: it owns every value that comes into being and counts what they cost.
#pragma once

#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/limits.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Macro;
struct Native;
struct Statement;

// Variables of a block. Names are numbers that the program gives them.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro that may outlive the block refers to it

  const Value* find(int name) const;  // null: not here
  void set(int name, const Value& value);
  void clear();

 private:
  size_t place(int name) const;  // how many there are if it is not among them

  std::vector<std::pair<int, Value>> variables_;
  std::unordered_map<int, size_t> index_;  // once there are more than a few
};

struct Callable {
  enum class What : uint8_t { kNative, kMacro, kJoiner } what;
  const Native* native = nullptr;
  Value self;  // kNative: the object of a method
  const Macro* macro = nullptr;
  Scope* scope = nullptr;  // kMacro: where it was defined
  std::string separator;   // kJoiner
  bool used = false;
};

// The variable `loop`.
struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // where the loop stands
  Sequence* items = nullptr;
  size_t index = 0;
  int depth = 0;
  bool has_changed_before = false;
  std::vector<Value> last_values;  // of changed()
};

// Allocating never fails: a limit that is passed makes the next spend() fail. What can grow by
// more than a small factor in one operation is claimed first. One thread.
class Runtime {
 public:
  // `now` is what strftime_now() shows; the local time if absent.
  Runtime(const Limits& limits, std::optional<std::tm> now) : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  std::tm now() const;

  // kResourceExhausted, naming the limit, if that was too much.
  Status spend(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ <= limits_.steps && memory_ <= limits_.memory_bytes) return {};
    return exhausted();
  }
  Status spend_text(size_t bytes) { return spend(bytes / 16); }
  // Whether `count` things of `bytes` each could still be made. Does not count them.
  Status claim(Int count, size_t bytes) const;
  size_t memory_left() const {
    return memory_ < limits_.memory_bytes ? limits_.memory_bytes - memory_ : 0;
  }

  Value text(std::string bytes);
  Value borrow(std::string_view bytes);  // they outlive this object
  Value safe_text(std::string bytes);
  Sequence* sequence(Sequence::Flavour flavour = Sequence::Flavour::kList);
  void push(Sequence* sequence, const Value& value);
  Value pair(const Value& first, const Value& second);  // a tuple
  Dict* dict();
  Callable* callable(Callable::What what);
  Loop* loop();
  Cycler* cycler();
  Scope* scope(Scope* parent);
  // For the next scope(), unless something refers to it.
  void release(Scope* scope);

  // Sets or replaces. An error for a key that Python cannot hash.
  Status put(Dict* dict, const Value& key, const Value& value);
  // The entry's place, or -1.
  Expected<int64_t> find(const Dict* dict, const Value& key);
  // Requires a place that find() gave.
  Status erase(Dict* dict, size_t place);

  // Evaluation one level deeper, for the life of the object.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    bool too_deep() const { return runtime_.depth_ > runtime_.limits_.depth; }

   private:
    Runtime& runtime_;
  };
  Status too_deep() const;
  Status too_nested() const;

 private:
  friend class TextBuilder;
  Status exhausted() const;

  Limits limits_;
  std::optional<std::tm> now_;
  uint64_t steps_ = 0;
  size_t memory_ = 0;
  int depth_ = 0;

  std::deque<Text> texts_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Callable> callables_;
  std::deque<Loop> loops_;
  std::deque<Cycler> cyclers_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
};

// Collects text and stops growing at a limit; ask status() at the end, and in loops that could go
// on for long.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  // For what the rendering gives, which has a limit of its own.
  struct Output {};
  TextBuilder(Runtime& runtime, Output) : runtime_(runtime), output_(true) {}

  void add(std::string_view text) {
    runtime_.steps_ += text.size() / 16;
    const size_t left =
        output_ ? runtime_.limits_.output_bytes - text_.size() : runtime_.memory_left();
    if (full_ || text.size() > left) {
      full_ = true;
      return;
    }
    if (!output_) runtime_.memory_ += text.size();
    text_ += text;
  }
  void add(char c) { add(std::string_view(&c, 1)); }
  // Takes no more; status() is `why`, unless there is a reason already.
  void stop(Status why) {
    if (stopped_.ok()) stopped_ = std::move(why);
    full_ = true;
  }
  bool full() const { return full_; }
  Status status() const;
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }
  // What was collected, as a value.
  Expected<Value> value();

 private:
  Runtime& runtime_;
  bool output_ = false;
  bool full_ = false;
  Status stopped_;
  std::string text_;
};

// An error of the template or of what it was given.
Status fail(std::string message);

}  // namespace aerie::jinja
