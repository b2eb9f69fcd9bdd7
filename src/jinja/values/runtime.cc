#include "jinja/values/runtime.h"

#include <fmt/format.h>

#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr size_t kIndexedFrom = 9;  // entries; fewer are looked through
constexpr const char* kOfMemory = "bytes for its values";

void index_from(Dict& dict, size_t first) {
  for (size_t i = first; i < dict.entries.size(); ++i) {
    const Value& key = dict.entries[i].first;
    if (key.is_text()) dict.index.emplace(key.view(), i);
  }
}

}  // namespace

std::tm Runtime::now() const {
  if (now_) return *now_;
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

Runtime::Failure Runtime::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return {};
}

Runtime::Failure Runtime::fail_over(size_t limit, std::string_view what) {
  if (failed()) return {};
  return fail(resource_exhausted("the template needs more than {} {}", limit, what));
}

bool Runtime::exhausted() {
  if (steps_ > limits_.steps) return fail_over(limits_.steps, "steps");
  return fail_over(limits_.memory_bytes, kOfMemory);
}

bool Runtime::claim(Int count, size_t bytes) {
  const size_t left = limits_.memory_bytes - std::min(memory_, limits_.memory_bytes);
  if (count <= 0 || bytes == 0 || count <= Int{left / bytes}) return !failed();
  return fail_over(limits_.memory_bytes, kOfMemory);
}

void Runtime::fail_too_deep() {
  fail_over(static_cast<size_t>(limits_.depth),
            "levels of evaluation (macros that call macros, expressions inside expressions)");
}

bool Runtime::may_nest(int nesting) {
  if (nesting <= limits_.nesting) return spend();
  return fail_over(static_cast<size_t>(limits_.nesting),
                   "levels of lists and dicts inside each other");
}

Value Runtime::text(std::string bytes, bool safe) {
  steps_ += bytes.size() / 16;
  memory_ += bytes.size();
  Text& made_text = made(texts_, std::move(bytes));
  made_text.safe = safe;
  return Value::of(&made_text);
}

Value Runtime::borrow(std::string_view bytes) {
  steps_ += bytes.size() / 16;  // to see whether they are ASCII
  return Value::of(&made(texts_, Text::Borrow{}, bytes));
}

Sequence* Runtime::sequence(Sequence::Flavour flavour) {
  Sequence& result = made(sequences_);
  result.flavour = flavour;
  return &result;
}

void Runtime::push(Sequence* sequence, const Value& value) {
  memory_ += 2 * sizeof(Value);  // a vector doubles when it is full
  if (memory_ <= limits_.memory_bytes) sequence->items.push_back(value);
}

void Runtime::push(Sequence* sequence, const std::vector<Value>& values) {
  if (!spend(values.size() / 4)) return;
  for (const Value& value : values) push(sequence, value);
  spend(0);
}

Value Runtime::tuple(const std::vector<Value>& items) {
  Sequence* result = sequence(Sequence::Flavour::kTuple);
  push(result, items);
  return Value::of(result);
}

Value Runtime::pair(const Value& first, const Value& second) {
  Sequence* tuple = sequence(Sequence::Flavour::kTuple);
  push(tuple, first);
  push(tuple, second);
  return Value::of(tuple);
}

Callable* Runtime::callable(Callable::What what) {
  Callable& result = made(callables_);
  result.what = what;
  return &result;
}

Scope* Runtime::scope(Scope* parent) {
  Scope* result;
  if (free_scopes_.empty()) {
    memory_ += 4 * sizeof(Value);
    result = &made(scopes_);
  } else {
    result = free_scopes_.back();
    free_scopes_.pop_back();
  }
  result->parent = parent;
  return result;
}

void Runtime::release(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

Dict::Entry* Runtime::find(Dict* dict, const Value& key) {
  if (!is_hashable(key)) {
    return fail("a value of type '{}' cannot be a key", type_name(key));
  }
  if (key.is_text()) spend_text(key.view().size());
  if (key.is_text() && dict->entries.size() >= kIndexedFrom) {
    const auto found = dict->index.find(key.view());
    return found == dict->index.end() ? nullptr : &dict->entries[found->second];
  }
  for (Dict::Entry& entry : dict->entries) {
    // Only a text is equal to a text.
    if (key.is_text() != entry.first.is_text()) continue;
    if (key.is_text() ? key.view() == entry.first.view() : equal(*this, entry.first, key)) {
      return &entry;
    }
  }
  return nullptr;
}

void Runtime::put(Dict* dict, const Value& key, const Value& value) {
  if (Dict::Entry* entry = find(dict, key)) {
    entry->second = value;
    return;
  }
  memory_ += 4 * sizeof(Value) + (key.is_text() ? 64 : 0);
  if (!spend()) return;
  dict->entries.emplace_back(key, value);
  const size_t count = dict->entries.size();
  if (count >= kIndexedFrom) index_from(*dict, count == kIndexedFrom ? 0 : count - 1);
}

void Runtime::erase(Dict* dict, const Dict::Entry* entry) {
  spend(dict->entries.size());
  dict->entries.erase(dict->entries.begin() + (entry - dict->entries.data()));
  dict->index.clear();
  if (dict->entries.size() >= kIndexedFrom) index_from(*dict, 0);
}

void TextBuilder::add(std::string_view text) {
  runtime_.steps_ += text.size() / 16;
  const Limits& limits = runtime_.limits_;
  const size_t used = output_ ? text_.size() : runtime_.memory_;
  const size_t most = output_ ? limits.output_bytes : limits.memory_bytes;
  if (runtime_.failed()) return;
  if (used > most || text.size() > most - used) {
    runtime_.fail_over(most, output_ ? "bytes of output" : kOfMemory);
    return;
  }
  if (!output_) runtime_.memory_ += text.size();
  text_ += text;
}

void TextBuilder::repeat(std::string_view text, Int count) {
  if (!runtime_.claim(count, text.size())) return;
  for (Int i = 0; !text.empty() && i < count; ++i) add(text);
}

Value TextBuilder::value(bool safe) {
  runtime_.memory_ -= text_.size();  // text() counts it
  return runtime_.text(std::move(text_), safe);
}

}  // namespace aerie::jinja
