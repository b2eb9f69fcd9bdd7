// One rendering: it owns every value that comes into being, counts what they cost, and knows
// whether it has failed.
#pragma once

#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
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

  // Here or in the blocks around; null if nowhere.
  const Value* look_up(int name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      const auto found = scope->variables.find(name);
      if (found != scope->variables.end()) return &found->second;
    }
    return nullptr;
  }
  void set(int name, const Value& value) { variables.insert_or_assign(name, value); }

  std::map<int, Value> variables;
};

struct Callable {
  enum class What : uint8_t { kNative, kMacro, kJoiner } what;
  const Native* native = nullptr;
  Value self;  // kNative: the object of a method
  const Macro* macro = nullptr;
  Scope* scope = nullptr;      // kMacro: where it was defined
  std::string_view separator;  // kJoiner
  bool used = false;
};

// The variable `loop`.
struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // where the loop stands
  Sequence* items = nullptr;
  int depth = 0;
  size_t index = 0;
  Value last_values = Value::absent();  // of changed()
};

// The first failure stays: from then on spend() is false, which ends every loop, and what is
// computed meanwhile goes unseen. Allocating never fails: a limit that is passed makes the next
// spend() fail. What can grow by more than a small factor in one operation is claimed first. One
// thread.
class Runtime {
 public:
  // `now` is what strftime_now() shows; the local time if absent.
  Runtime(const Limits& limits, std::optional<std::tm> now) : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  std::tm now() const;

  // Stands for a value of any type where there is none.
  struct Failure {
    template <typename T>
    operator T() const {  // NOLINT(google-explicit-constructor)
      return T();
    }
  };
  Failure fail(Status status);
  // An error of the template or of what it was given.
  Failure fail(std::string message) { return fail(invalid_argument(std::move(message))); }
  template <typename... Args>
  Failure fail(fmt::format_string<Args...> message, Args&&... args) requires(sizeof...(Args) > 0) {
    return fail(fmt::format(message, std::forward<Args>(args)...));
  }
  // kResourceExhausted: "the template needs more than `limit` `what`".
  Failure fail_over(size_t limit, std::string_view what);
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }
  // Puts `where` before the message of the failure.
  void add_context(const std::string& where) { status_ = status_.with_context(where); }

  // False if that was too much, or the rendering has failed already.
  bool spend(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ <= limits_.steps && memory_ <= limits_.memory_bytes) return status_.ok();
    return exhausted();
  }
  bool spend_text(size_t bytes) { return spend(bytes / 16); }
  // Whether `count` things of `bytes` each could still be made. Does not count them.
  bool claim(Int count, size_t bytes);

  Value text(std::string bytes, bool safe = false);
  Value text(std::string_view bytes) { return text(std::string(bytes)); }
  Value text(const char* bytes) = delete;  // borrow()
  Value borrow(std::string_view bytes);    // they outlive this object
  Sequence* sequence(Sequence::Flavour flavour = Sequence::Flavour::kList);
  Value tuple(const std::vector<Value>& items);
  Value pair(const Value& first, const Value& second);  // a tuple
  void push(Sequence* sequence, const Value& value);
  void push(Sequence* sequence, const std::vector<Value>& values);
  Dict* dict() { return &made(dicts_); }
  Callable* callable(Callable::What what);
  Loop* loop() { return &made(loops_); }
  Cycler* cycler() { return &made(cyclers_); }
  Scope* scope(Scope* parent);
  // For the next scope(), unless something refers to it.
  void release(Scope* scope);

  // Sets or replaces. Fails for a key that Python cannot hash.
  void put(Dict* dict, const Value& key, const Value& value);
  // Null if there is none.
  Dict::Entry* find(Dict* dict, const Value& key);
  // An entry that find() gave.
  void erase(Dict* dict, const Dict::Entry* entry);

  // Evaluation one level deeper, for the life of the object. Fails where that is too deep.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.depth_ > runtime_.limits_.depth) runtime_.fail_too_deep();
    }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };
  // Whether a value may be nested so deep; fails if not. Counts a step.
  bool may_nest(int nesting);

 private:
  friend class TextBuilder;
  bool exhausted();
  void fail_too_deep();
  template <typename T, typename... Arguments>
  T& made(std::deque<T>& all, Arguments&&... arguments) {
    memory_ += sizeof(T);
    return all.emplace_back(std::forward<Arguments>(arguments)...);
  }

  Limits limits_;
  std::optional<std::tm> now_;
  Status status_;
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

// Collects text. At a limit the rendering fails and the text grows no more.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  // For what the rendering gives, which has a limit of its own.
  struct Output {};
  TextBuilder(Runtime& runtime, Output) : runtime_(runtime), output_(true) {}

  Runtime& runtime() { return runtime_; }
  void add(std::string_view text);
  void add(char c) { add(std::string_view(&c, 1)); }
  void repeat(std::string_view text, Int count);
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }
  // What was collected, as a value.
  Value value(bool safe = false);

 private:
  Runtime& runtime_;
  bool output_ = false;
  std::string text_;
};

}  // namespace aerie::jinja
